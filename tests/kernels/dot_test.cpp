// Every rung of `dot` against a scalar fmaf chain: equal bits for random dims, strides, dtypes,
// shards, epilogues, threads and instruction sets.
#include <bit>
#include <cmath>
#include <map>

#include "tegula/kernels/cpu/isa/unary.h"
#include "tests/kernels/strided.h"

namespace tegula {
namespace {
using testing::pick;
using testing::Rng;
using testing::Tensor;

struct Case {
  std::string dims;
  std::vector<std::string> names[3];  // a, b, out
  std::map<std::string, int64_t> extent;
  int64_t k_shards = 1;
  bool scales = false, bias = false, accumulates = false;
  std::string activation = "none";
  DType in = DType::kF32, out = DType::kF32;

  std::vector<int64_t> shape(int operand) const {
    std::vector<int64_t> s;
    for (const auto& n : names[operand]) s.push_back(extent.at(n));
    return s;
  }
  std::vector<std::string> bias_names() const {
    if (accumulates) return names[2];
    std::vector<std::string> r;
    for (const auto& n : names[2])
      if (std::find(names[0].begin(), names[0].end(), n) == names[0].end()) r.push_back(n);
    return r;
  }
  Attrs attrs() const {
    Attrs a{{"dims", dims}};
    if (k_shards != 1) a.set("k_shards", k_shards);
    if (scales) a.set("scale", 0.3);
    if (bias) a.set("bias", true);
    if (accumulates) a.set("accumulate", true);
    if (activation != "none") a.set("activation", activation);
    if (out != in) a.set("out", out);
    return a;
  }
};

void write_dims(Case& c) {
  const auto join = [](const std::vector<std::string>& v) {
    std::string s;
    for (const auto& n : v) s += (s.empty() ? "" : " ") + n;
    return s;
  };
  c.dims = join(c.names[0]) + ", " + join(c.names[1]) + " -> " + join(c.names[2]);
}

Case matmul(int64_t m, int64_t k, int64_t n, int64_t k_shards = 1) {
  Case c;
  c.names[0] = {"m", "k"}, c.names[1] = {"k", "n"}, c.names[2] = {"m", "n"};
  c.extent = {{"m", m}, {"k", k}, {"n", n}};
  c.k_shards = k_shards;
  write_dims(c);
  return c;
}

Case random_case(Rng& rng) {
  Case c;
  const int64_t kinds[4] = {pick(rng, 0, 2) / 2, pick(rng, 0, 4) / 2, pick(rng, 0, 4) / 2,
                            pick(rng, 0, 4) / 2};
  const char* letters = "bmnk";
  // Large enough to pass a register tile and a k block, small enough for the scalar oracle.
  const int64_t most[4] = {5, 40, 70, 60};
  for (int kind = 0; kind < 4; ++kind) {
    for (int64_t i = 0; i < kinds[kind]; ++i) {
      const std::string name = std::string(1, letters[kind]) + std::to_string(i);
      int64_t e = pick(rng, 1, std::max<int64_t>(2, most[kind] / (kinds[kind] == 2 ? 7 : 1)));
      if (kind == 3 && i == 0) e *= 8;
      if (pick(rng, 0, 60) == 0) e = 0;
      c.extent[name] = e;
      if (kind != 2) c.names[0].push_back(name);
      if (kind != 1) c.names[1].push_back(name);
      if (kind != 3) c.names[2].push_back(name);
    }
  }
  for (auto& n : c.names) std::shuffle(n.begin(), n.end(), rng);
  int64_t k = 1;
  for (const auto& [name, e] : c.extent)
    if (name[0] == 'k') k *= e;
  c.k_shards = int64_t{1} << pick(rng, 0, 3);
  while (k % c.k_shards != 0) c.k_shards /= 2;
  c.bias = pick(rng, 0, 2) == 0;
  const char* activations[] = {"none", "none", "relu", "gelu", "silu"};
  c.activation = activations[pick(rng, 0, 4)];
  const DType floats[] = {DType::kF32, DType::kF32, DType::kBF16, DType::kF16};
  c.in = floats[pick(rng, 0, 3)];
  c.out = pick(rng, 0, 2) ? c.in : floats[pick(rng, 0, 3)];
  c.accumulates = c.k_shards == 1 && pick(rng, 0, 1) == 0;
  c.scales = pick(rng, 0, 2) == 0;
  if (c.accumulates) c.scales = c.bias = false, c.activation = "none", c.out = DType::kF32;
  write_dims(c);
  return c;
}

double round_to(DType t, double v) {
  const auto f = static_cast<float>(v);
  if (t == DType::kBF16) return static_cast<float>(bf16(f));
  if (t == DType::kF16) return static_cast<float>(f16(f));
  return t == DType::kF64 ? v : f;
}

double activate(const std::string& name, double v) {
  if (name == "none") return v;
  const auto x = static_cast<float>(v);
  if (name == "relu") return x < 0 ? 0 : x;
  float y;
  const auto f = name == "gelu" ? kernel::Unary::kGelu : kernel::Unary::kSilu;
  kernel::isa_table().unary({f, &x, &y, 1});
  return y;
}

// The contract, written down once more: shards of ascending fma chains, a tree, the epilogue.
std::vector<double> oracle(const Case& c, const Tensor& a, const Tensor& b, const Tensor& bias) {
  std::vector<std::string> k_names;
  for (const auto& n : c.names[0])
    if (std::find(c.names[2].begin(), c.names[2].end(), n) == c.names[2].end())
      k_names.push_back(n);
  int64_t n_k = 1;
  for (const auto& n : k_names) n_k *= c.extent.at(n);
  const auto unflatten = [&](const std::vector<std::string>& names, int64_t i,
                             std::map<std::string, int64_t>& at) {
    for (auto n = names.rbegin(); n != names.rend(); ++n)
      at[*n] = i % c.extent.at(*n), i /= c.extent.at(*n);
  };
  const auto flat = [&](const std::vector<std::string>& names,
                        const std::map<std::string, int64_t>& at) {
    int64_t i = 0;
    for (const auto& n : names) i = i * c.extent.at(n) + at.at(n);
    return i;
  };
  int64_t n_out = 1;
  for (const auto& n : c.names[2]) n_out *= c.extent.at(n);
  std::vector<double> out;
  std::map<std::string, int64_t> at;
  for (int64_t i = 0; i < n_out; ++i) {
    unflatten(c.names[2], i, at);
    std::vector<double> s;
    for (int64_t shard = 0; shard < c.k_shards; ++shard) {
      double acc = c.accumulates ? bias.at(flat(c.names[2], at)) : 0;
      for (int64_t k = shard * n_k / c.k_shards; k < (shard + 1) * n_k / c.k_shards; ++k) {
        unflatten(k_names, k, at);
        const double x = a.at(flat(c.names[0], at)), y = b.at(flat(c.names[1], at));
        acc = c.in == DType::kF64
                  ? std::fma(x, y, acc)
                  : std::fma(static_cast<float>(x), static_cast<float>(y), static_cast<float>(acc));
      }
      s.push_back(acc);
    }
    while (s.size() > 1) {
      for (size_t j = 0; 2 * j < s.size(); ++j)
        s[j] = c.in == DType::kF64
                   ? s[2 * j] + s[2 * j + 1]
                   : static_cast<float>(s[2 * j]) + static_cast<float>(s[2 * j + 1]);
      s.resize(s.size() / 2);
    }
    double y = round_to(c.out, s[0]);
    if (c.scales) {
      const double z = round_to(c.out, 0.3);
      y = round_to(c.out,
                   c.out == DType::kF64 ? y * z : static_cast<float>(y) * static_cast<float>(z));
    }
    if (c.bias) {
      const double z = bias.at(flat(c.bias_names(), at));
      y = round_to(c.out,
                   c.out == DType::kF64 ? y + z : static_cast<float>(y) + static_cast<float>(z));
    }
    out.push_back(round_to(c.out, activate(c.activation, y)));
  }
  return out;
}

void expect_equal(const Tensor& out, const std::vector<double>& want, const std::string& what) {
  for (size_t i = 0; i < want.size(); ++i) {
    const double got = out.at(static_cast<int64_t>(i));
    // -0 and 0 differ as bits.
    ASSERT_EQ(std::bit_cast<uint64_t>(got), std::bit_cast<uint64_t>(want[i]))
        << what << " at " << i << ": " << got << " instead of " << want[i];
  }
}

int64_t math_flops(const Case& c) {
  int64_t out = 1, k = 1;
  for (const auto& [name, e] : c.extent)
    (std::find(c.names[2].begin(), c.names[2].end(), name) != c.names[2].end() ? out : k) *= e;
  const int64_t act = c.activation == "gelu"   ? 8
                      : c.activation == "silu" ? 4
                      : c.activation == "relu" ? 1
                                               : 0;
  return out * (2 * k + c.k_shards - 1 + (c.scales ? 1 : 0) + (c.bias ? 1 : 0) + act);
}

// The operands that a case reads, and room for what it writes.
struct Operands {
  Tensor a, b, bias, out;
  std::vector<TensorRef> in;

  Operands(const Case& c, Rng& rng)
      : a(c.in, c.shape(0), rng, true),
        b(c.in, c.shape(1), rng, true),
        bias(c.out, bias_shape(c), rng, true),
        out(c.out, c.shape(2), rng, false) {
    a.fill_random(rng), b.fill_random(rng), bias.fill_random(rng);
    in = {a.ref(), b.ref()};
    if (c.bias || c.accumulates) in.push_back(bias.ref());
  }
  auto outs() { return std::span(&out.ref(), 1); }

 private:
  static std::vector<int64_t> bias_shape(const Case& c) {
    std::vector<int64_t> shape;
    for (const auto& n : c.bias_names()) shape.push_back(c.extent.at(n));
    return shape;
  }
};

void check_case(const Case& c, Rng& rng) {
  Operands x(c, rng);
  const std::vector<double> want = oracle(c, x.a, x.b, x.bias);
  const Attrs attrs = c.attrs();
  const std::string what = c.dims + " " + std::string(dtype_name(c.in)) + "->" +
                           std::string(dtype_name(c.out)) + " shards " +
                           std::to_string(c.k_shards) + " " + c.activation;
  const auto run = [&](const KernelDef* def, int threads, void (*entry)(const KernelCall&),
                       const std::string& name) {
    x.out.fill(777);
    const auto counted = testing::run_kernel(*def, attrs, x.in, x.outs(), threads, entry);
    expect_equal(x.out, want, name + " x" + std::to_string(threads) + " " + what);
    EXPECT_EQ(counted.math_flops, math_flops(c)) << name << " " << what;
    EXPECT_GE(counted.executed_flops, counted.math_flops) << name << " " << what;
  };
  const int threads = static_cast<int>(pick(rng, 1, 3));
  for (const KernelDef* def : cpu_kernels()) {
    const KernelQuery q{.attrs = &attrs, .in = x.in, .out = x.outs()};
    if (def->op == "dot" && def->order == "fma_chain" && def->supports(q))
      run(def, threads, nullptr, std::string(def->name));
    if (::testing::Test::HasFatalFailure()) return;
  }
  if (c.in == DType::kF64) return;
  for (Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
    const kernel::IsaTable* table = kernel::isa_table_of(isa);
    if (table == nullptr) continue;
    run(find_kernel("dot_packed"), threads, table->dot_packed, std::string(isa_name(isa)));
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(Dot, EqualsTheScalarChainOnRandomCases) {
  for (unsigned seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    check_case(random_case(rng), rng);
    if (HasFatalFailure()) return;
  }
}

TEST(Dot, EqualsTheScalarChainAcrossEveryBlockEdge) {
  Rng rng(1);
  // Past kBlockM, kBlockN and kBlockK; shards in groups, alone, and in pieces.
  for (const Case& c :
       {matmul(1, 1, 1), matmul(1, 600, 17), matmul(5, 768, 33, 8), matmul(170, 40, 390),
        matmul(29, 400, 50, 8), matmul(20, 3208, 24, 8), matmul(175, 900, 19, 2),
        matmul(180, 770, 20), matmul(0, 4, 5), matmul(3, 0, 5), matmul(3, 0, 5, 8)}) {
    check_case(c, rng);
    if (HasFatalFailure()) return;
  }
}

TEST(Dot, EqualsTheScalarChainWithFewRows) {
  Rng rng(3);
  for (int64_t m = 1; m <= 17; ++m) {
    for (const char* b : {"k n", "n k"}) {
      Case c = matmul(m, 8 * pick(rng, 1, 30), m == 1 ? 1024 : pick(rng, 64, 700),
                      int64_t{1} << pick(rng, 0, 3));
      c.names[1] = {std::string(1, b[0]), std::string(1, b[2])};
      c.in = c.out = m % 2 ? DType::kF32 : DType::kBF16;
      c.bias = m % 5 == 3, c.activation = m % 7 == 2 ? "gelu" : "none";
      c.accumulates = m % 4 == 1 && c.in == DType::kF32;
      c.scales = m % 3 == 0 && !c.accumulates;
      if (c.accumulates) c.bias = false, c.activation = "none", c.k_shards = 1;
      write_dims(c);
      check_case(c, rng);
      if (HasFatalFailure()) return;
    }
  }
}

// Where processors sum products of bf16 in pairs of k: every layout, two of k, odd shards and rows
// an odd number of elements apart (no pairs).
TEST(Dot, EqualsTheScalarChainInPairs) {
  Rng rng(9);
  for (int i = 0; i < 32; ++i) {
    Case c = matmul(pick(rng, 17, 60), i == 10 ? 2 : pick(rng, 1, 45) * (i % 5 == 3 ? 1 : 2),
                    pick(rng, 33, 100));
    while (c.k_shards < 4 && i % 4 == 1 && c.extent["k"] % (2 * c.k_shards) == 0) c.k_shards *= 2;
    if (i % 2 != 0) c.names[0] = {"k", "m"};
    if (i / 2 % 2 != 0) c.names[1] = {"n", "k"};
    c.in = DType::kBF16, c.out = i % 3 == 0 ? DType::kF32 : DType::kBF16;
    c.accumulates = i % 8 == 6 && c.out == DType::kF32 && c.k_shards == 1;
    c.bias = i % 5 == 2 && !c.accumulates;
    c.scales = i % 7 == 3 && !c.accumulates;
    write_dims(c);
    check_case(c, rng);
    if (HasFatalFailure()) return;
  }
}

// Threads that pack both operands for themselves, tiles beside their products: every layout, ragged
// rows, columns, chunks and blocks of k.
TEST(Dot, EqualsNaiveWherePanelsAreAThreadsOwn) {
  Rng rng(5);
  for (int i = 0; i < 24; ++i) {
    const int64_t k = i % 6 == 5 ? pick(rng, 2049, 4300) : pick(rng, 1, 400);
    Case c = matmul(pick(rng, 169, 330), k, pick(rng, 140, 420));
    while (c.k_shards < 8 && i % 4 == 1 && k % (2 * c.k_shards) == 0) c.k_shards *= 2;
    if (i % 2 != 0) c.names[0] = {"k", "m"};
    if (i % 4 >= 2) c.names[1] = {"n", "k"};
    if (i % 7 == 3) {
      c.extent["b"] = 2;
      for (auto& names : c.names) names.insert(names.begin(), "b");
    }
    c.bias = i % 3 == 0, c.scales = i % 4 >= 2;
    c.in = i % 8 == 7 ? DType::kBF16 : DType::kF32;
    c.accumulates = i % 5 == 4 && c.k_shards == 1 && !c.bias && !c.scales;
    write_dims(c);
    Operands x(c, rng);
    Tensor want(c.out, c.shape(2));
    testing::run_kernel(*find_kernel("dot_naive"), c.attrs(), x.in, std::span(&want.ref(), 1), 2);
    for (const int threads : {1, 2, 5, 9}) {
      x.out.fill(777);
      testing::run_kernel(*find_kernel("dot_packed"), c.attrs(), x.in, x.outs(), threads);
      for (int64_t j = 0; j < x.out.numel(); ++j)
        ASSERT_EQ(std::bit_cast<uint64_t>(x.out.at(j)), std::bit_cast<uint64_t>(want.at(j)))
            << i << " " << c.dims << " k " << k << " shards " << c.k_shards << " x" << threads
            << " at " << j;
    }
  }
}

// A chain in pieces is the whole one; the sums may lie where the result goes.
TEST(Dot, GoesOnInPlace) {
  Rng rng(4);
  for (const int64_t m : {3, 40}) {
    Tensor a(DType::kF32, {m, 500}), b(DType::kF32, {500, 70}), whole(DType::kF32, {m, 70});
    Tensor sum(DType::kF32, {m, 70});
    a.fill_random(rng), b.fill_random(rng), sum.fill(0);
    Attrs attrs{{"dims", std::string("m k, k n -> m n")}};
    const KernelDef& packed = *find_kernel("dot_packed");
    const TensorRef all[] = {a.ref(), b.ref()};
    testing::run_kernel(packed, attrs, all, std::span(&whole.ref(), 1), 2);
    attrs.set("accumulate", true);
    for (const auto& [k, n] : {std::pair{0, 130}, {130, 0}, {130, 370}}) {
      TensorRef x = a.ref(), y = b.ref();
      x.data = x.as<float>() + k, x.shape[1] = n;
      y.data = y.as<float>() + k * 70, y.shape[0] = n;
      const TensorRef in[] = {x, y, sum.ref()};
      testing::run_kernel(packed, attrs, in, std::span(&sum.ref(), 1), 2);
    }
    for (int64_t i = 0; i < m * 70; ++i) ASSERT_EQ(sum.at(i), whole.at(i)) << m << " at " << i;
  }
}

TEST(Dot, DoublesAndIntegers) {
  Rng rng(2);
  Case c = matmul(13, 48, 21, 4);
  for (DType t : {DType::kF64, DType::kI64, DType::kI32}) {
    c.in = c.out = t;
    c.bias = c.scales = t == DType::kF64;
    if (t == DType::kF64) {
      check_case(c, rng);
      continue;
    }
    Tensor a(t, {13, 48}), b(t, {48, 21}), out(t, {13, 21});
    a.fill_random(rng), b.fill_random(rng);
    const TensorRef in[] = {a.ref(), b.ref()};
    testing::run_kernel(*find_kernel("dot_naive"), c.attrs(), in, std::span(&out.ref(), 1), 2);
    for (int64_t i = 0; i < out.numel(); ++i) {
      double want = 0;
      for (int64_t k = 0; k < 48; ++k) want += a.at(i / 21 * 48 + k) * b.at(k * 21 + i % 21);
      ASSERT_EQ(out.at(i), want);
    }
  }
}

TEST(Dot, RefusesWhatItCannotDo) {
  Tensor a(DType::kF32, {3, 4}), b(DType::kF32, {4, 5}), out(DType::kF32, {3, 5});
  const TensorRef in[] = {a.ref(), b.ref()};
  for (const char* dims :
       {"m k, k n", "m k, j n -> m n", "m k k, k n -> m n", "m, k n -> m n", "m k, k n -> m m",
        "m k, k n, n -> m n", "m k, n k -> m n", "m k, k n -> m"}) {
    const Attrs attrs{{"dims", std::string(dims)}};
    for (const KernelDef* def : cpu_kernels())
      if (def->op == "dot")
        EXPECT_FALSE(def->supports({.attrs = &attrs, .in = in, .out = std::span(&out.ref(), 1)}))
            << def->name << " " << dims;
  }
  const Attrs shards{{"dims", std::string("m k, k n -> m n")}, {"k_shards", int64_t{8}}};
  EXPECT_FALSE(find_kernel("dot_packed")
                   ->supports({.attrs = &shards, .in = in, .out = std::span(&out.ref(), 1)}));
}

}  // namespace
}  // namespace tegula
