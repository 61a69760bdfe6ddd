// The contraction in AMX's tiles against the order "amx_pairs" written down once more: equal bits
// for random dims, strides, shards, epilogues and threads, in emulated tiles and in real ones; and
// its error against double.
#include <bit>
#include <cmath>

#include "tegula/base/denormals.h"
#include "tegula/kernels/cpu/isa/unary.h"
#include "tests/kernels/strided.h"

namespace tegula {
namespace {
using testing::pick;
using testing::Rng;
using testing::Tensor;

// out[b, m, n]; each operand's dims may stand in any order.
struct Case {
  int64_t b = 1, m = 1, n = 1, k = 1, shards = 1;
  const char *a_dims = "b m k", *b_dims = "b k n", *out_dims = "b m n";
  bool scales = false, bias = false, goes_on = false;
  const char* activation = "none";
  DType out = DType::kBF16;

  int64_t extent(char name) const {
    return name == 'b' ? b : name == 'm' ? m : name == 'n' ? n : k;
  }
  std::vector<int64_t> shape(const char* dims) const {
    std::vector<int64_t> s;
    for (; *dims; ++dims)
      if (*dims != ' ') s.push_back(extent(*dims));
    return s;
  }
  std::string dims() const { return cat(a_dims, ", ", b_dims, " -> ", out_dims); }
  Attrs attrs() const {
    Attrs a{{"dims", dims()}};
    if (shards != 1) a.set("k_shards", shards);
    if (scales) a.set("scale", 0.3);
    if (bias) a.set("bias", true);
    if (goes_on) a.set("accumulate", true);
    if (std::string(activation) != "none") a.set("activation", std::string(activation));
    if (out != DType::kBF16) a.set("out", out);
    return a;
  }
  std::string name() const {
    return cat(dims(), " b", b, " m", m, " n", n, " k", k, " shards ", shards,
               scales ? " scaled" : "",
               bias      ? " bias "
               : goes_on ? " goes on "
                         : " ",
               activation, " ", dtype_name(out));
  }
  // Where element (b, m, n, k) lies in an operand, row-major.
  int64_t at(const char* dims, int64_t ib, int64_t im, int64_t in, int64_t ik) const {
    int64_t i = 0;
    for (; *dims; ++dims)
      if (*dims != ' ')
        i = i * extent(*dims) + (*dims == 'b' ? ib : *dims == 'm' ? im : *dims == 'n' ? in : ik);
    return i;
  }
};

float narrow(DType t, float x) { return t == DType::kBF16 ? static_cast<float>(bf16(x)) : x; }

struct Sums {
  float order;  // by "amx_pairs"
  float naive;  // one f32 chain
  double exact;
};

Sums sums_of(const Case& c, const Tensor& a, const Tensor& b, float start, int64_t ib, int64_t im,
             int64_t in) {
  Sums s{0, start, start};
  const auto x = [&](int64_t k) { return static_cast<float>(a.at(c.at(c.a_dims, ib, im, in, k))); };
  const auto y = [&](int64_t k) { return static_cast<float>(b.at(c.at(c.b_dims, ib, im, in, k))); };
  for (int64_t k = 0; k < c.k; ++k) {
    s.naive = std::fma(x(k), y(k), s.naive);
    s.exact += static_cast<double>(x(k)) * y(k);
  }
  std::vector<float> shards;
  for (int64_t shard = 0; shard < c.shards; ++shard) {
    float sum = start;
    for (int64_t k0 = 0; k0 < c.k / c.shards; k0 += 32) {
      float chain[2] = {};
      for (int64_t k = k0; k < std::min(k0 + 32, c.k / c.shards); ++k) {
        const int64_t at = shard * (c.k / c.shards) + k;
        chain[k % 2] = std::fma(x(at), y(at), chain[k % 2]);
      }
      sum += chain[0] + chain[1];
    }
    shards.push_back(sum);
  }
  for (; shards.size() > 1; shards.resize(shards.size() / 2))
    for (size_t i = 0; 2 * i < shards.size(); ++i) shards[i] = shards[2 * i] + shards[2 * i + 1];
  s.order = shards[0];
  return s;
}

float finish(const Case& c, float sum, float bias) {
  float y = narrow(c.out, sum);
  if (c.scales) y = narrow(c.out, y * narrow(c.out, 0.3F));
  if (c.bias) y = narrow(c.out, y + bias);
  const std::string f = c.activation;
  if (f == "none") return y;
  if (f == "relu") return y < 0 ? 0 : y;
  float z;
  const FlushDenormals as_kernels_do;
  kernel::isa_table().unary({f == "gelu" ? kernel::Unary::kGelu : kernel::Unary::kSilu, &y, &z, 1});
  return narrow(c.out, z);
}

void check_case(const Case& c, Rng& rng, std::vector<int> threads_of_runs = {1, 3}) {
  SCOPED_TRACE(c.name());
  Tensor a(DType::kBF16, c.shape(c.a_dims), rng, true),
      b(DType::kBF16, c.shape(c.b_dims), rng, true);
  Tensor out(c.out, c.shape(c.out_dims), rng, false), bias(c.out, {c.n}, rng, true);
  Tensor start(DType::kF32, c.shape(c.out_dims), rng, true);
  a.fill_random(rng), b.fill_random(rng), bias.fill_random(rng), start.fill_random(rng);
  std::vector<TensorRef> in = {a.ref(), b.ref()};
  if (c.bias) in.push_back(bias.ref());
  if (c.goes_on) in.push_back(start.ref());
  std::vector<float> want(static_cast<size_t>(out.numel()));
  double error = 0, naive_error = 0;
  for (int64_t ib = 0; ib < c.b; ++ib)
    for (int64_t im = 0; im < c.m; ++im)
      for (int64_t n = 0; n < c.n; ++n) {
        const int64_t at = c.at(c.out_dims, ib, im, n, 0);
        const Sums s =
            sums_of(c, a, b, c.goes_on ? static_cast<float>(start.at(at)) : 0, ib, im, n);
        want[static_cast<size_t>(at)] =
            finish(c, s.order, static_cast<float>(c.bias ? bias.at(n) : 0));
        error = std::max(error, std::fabs(s.order - s.exact));
        naive_error = std::max(naive_error, std::fabs(s.naive - s.exact));
      }
  // With few numbers one sum may be exact by luck.
  if (out.numel() > 200) EXPECT_LE(error, 2 * naive_error);
  const Attrs attrs = c.attrs();
  const KernelDef& def = *find_kernel("dot_amx");
  for (Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAmx}) {
    const kernel::IsaTable* table = kernel::isa_table_of(isa);
    if (table == nullptr) continue;
    for (int threads : threads_of_runs) {
      out.fill(777);
      const auto counted =
          testing::run_kernel(def, attrs, in, std::span(&out.ref(), 1), threads, table->dot_amx);
      for (size_t i = 0; i < want.size(); ++i) {
        const auto got = static_cast<float>(out.at(static_cast<int64_t>(i)));
        ASSERT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(want[i]))
            << isa_name(isa) << " x" << threads << " at " << i << ": " << got << ", not "
            << want[i];
      }
      const std::string f = c.activation;
      const int64_t per_output = 2 * c.k + c.shards - 1 + c.scales + c.bias +
                                 (f == "gelu"   ? 8
                                  : f == "silu" ? 4
                                  : f == "relu" ? 1
                                                : 0);
      EXPECT_EQ(counted.math_flops, c.b * c.m * c.n * per_output);
      EXPECT_GE(counted.executed_flops, counted.math_flops);
    }
  }
}

TEST(DotAmx, EqualsItsOrderOnRandomCases) {
  const char* as[] = {"b m k", "m b k", "b k m", "k m b"};
  const char* bs[] = {"b k n", "b n k", "n b k", "k b n"};
  const char* outs[] = {"b m n", "b m n", "m b n", "b n m"};
  const char* activations[] = {"none", "none", "relu", "gelu", "silu"};
  for (unsigned seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    Case c;
    c.b = pick(rng, 1, 3), c.m = pick(rng, 17, 70), c.n = pick(rng, 17, 70);
    c.shards = int64_t{1} << pick(rng, 0, 3);
    c.k = c.shards * pick(rng, 0, 2 * 96 / c.shards);
    c.a_dims = as[pick(rng, 0, 3)], c.b_dims = bs[pick(rng, 0, 3)],
    c.out_dims = outs[pick(rng, 0, 3)];
    c.bias = pick(rng, 0, 2) == 0;
    c.activation = activations[pick(rng, 0, 4)];
    c.out = pick(rng, 0, 1) ? DType::kBF16 : DType::kF32;
    if (c.shards == 1 && !c.bias && c.out == DType::kF32) c.goes_on = pick(rng, 0, 1) == 1;
    c.scales = !c.goes_on && pick(rng, 0, 2) == 0;
    check_case(c, rng);
    if (HasFatalFailure()) return;
  }
}

// Rows that fill no tile: b read where it lies, along n and along k, or packed like any other.
TEST(DotAmx, EqualsItsOrderWhereRowsAreFew) {
  for (unsigned seed = 0; seed < 120; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    Case c;
    c.m = seed % 16 + 1, c.n = pick(rng, 0, 3) == 0 ? pick(rng, 1, 63) : pick(rng, 64, 600);
    c.b = pick(rng, 0, 3) == 0 ? 2 : 1;
    c.shards = int64_t{1} << pick(rng, 0, 3);
    c.k = c.shards * pick(rng, 0, 300 / c.shards);
    c.b_dims = pick(rng, 0, 1) ? "b k n" : "b n k";
    c.a_dims = pick(rng, 0, 3) == 0 ? "b k m" : "b m k";
    c.out_dims = pick(rng, 0, 3) == 0 ? "b n m" : "b m n";
    c.out = pick(rng, 0, 1) ? DType::kBF16 : DType::kF32;
    c.bias = pick(rng, 0, 2) == 0;
    if (c.shards == 1 && !c.bias && c.out == DType::kF32) c.goes_on = pick(rng, 0, 1) == 1;
    check_case(c, rng);
    if (HasFatalFailure()) return;
  }
}

TEST(DotAmx, EqualsItsOrderAcrossEveryBlockEdge) {
  Rng rng(1);
  const auto matmul = [](int64_t m, int64_t k, int64_t n, int64_t shards = 1) {
    Case c;
    c.m = m, c.k = k, c.n = n, c.shards = shards;
    return c;
  };
  // Past a task's rows and columns, a block of k and a pass; shards in groups, alone, in pieces.
  for (const Case& c : {matmul(17, 32, 17), matmul(33, 64, 47), matmul(290, 40, 30),
                        matmul(20, 64, 550), matmul(17, 4128, 18), matmul(40, 768, 33, 8),
                        matmul(260, 3072, 20, 8), matmul(20, 4352, 40, 4), matmul(18, 16448, 17, 2),
                        matmul(17, 0, 20), matmul(18, 0, 17, 8), matmul(270, 96, 610),
                        matmul(260, 256, 590, 8), matmul(70, 3200, 150, 8), matmul(40, 416, 70),
                        matmul(300, 800, 130), matmul(258, 3300, 40), matmul(260, 3328, 70, 8)}) {
    check_case(c, rng);
    if (HasFatalFailure()) return;
  }
  for (Case c : {matmul(33, 64, 47), matmul(17, 4128, 18), matmul(20, 0, 550)}) {
    c.out = DType::kF32, c.goes_on = true;
    check_case(c, rng);
    if (HasFatalFailure()) return;
  }
}

// Blocks of a strip of b beside the products of the one before: from rows of k and from columns,
// in groups of shards, alone and in pieces; a task's last strip narrow; batches; a packed by all.
TEST(DotAmx, EqualsItsOrderWhereThreadsPackForThemselves) {
  Rng rng(7);
  const auto check = [&](int64_t b, int64_t m, int64_t k, int64_t n, int64_t shards,
                         const char* a_dims, const char* b_dims, DType out) {
    Case c;
    c.b = b, c.m = m, c.k = k, c.n = n, c.shards = shards, c.out = out;
    c.a_dims = a_dims, c.b_dims = b_dims;
    c.goes_on = shards == 1 && out == DType::kF32;
    check_case(c, rng, {9});
  };
  for (const char* b_dims : {"b k n", "b n k"}) {
    check(1, 290, 64, 70, 2, "b m k", b_dims, DType::kBF16);
    check(2, 270, 800, 100, 1, "b m k", b_dims, DType::kF32);
    check(1, 300, 2048, 33, 8, "b m k", b_dims, DType::kBF16);
    check(1, 530, 256, 96, 8, "b m k", b_dims, DType::kF32);
    check(1, 260, 96, 330, 1, "b k m", b_dims, DType::kF32);
    check(1, 300, 0, 40, 2, "b m k", b_dims, DType::kBF16);
    if (HasFatalFailure()) return;
  }
}

// So large that its lines go past the caches, but for those that are not whole.
TEST(DotAmx, EqualsItsOrderWhereResultsAreStreamed) {
  Rng rng(5);
  for (const DType out : {DType::kBF16, DType::kF32}) {
    Case c;
    c.m = 530, c.n = 1056, c.k = 64, c.out = out;
    for (const int64_t shards : {1, 2}) {
      c.shards = shards;
      check_case(c, rng);
      if (HasFatalFailure()) return;
    }
    c.n = 1040;  // its last strip has half the columns
    check_case(c, rng);
    c.scales = true;  // goes through the caches
    check_case(c, rng);
  }
}

TEST(DotAmx, WorkspaceGrowsWithEveryExtent) {
  Rng rng(3);
  const Attrs attrs{{"dims", std::string("m k, k n -> m n")}};
  const auto bytes = [&](int64_t m, int64_t n, int64_t k, int threads) {
    const TensorRef in[] = {contiguous_ref(nullptr, {DType::kBF16, {m, k}}),
                            contiguous_ref(nullptr, {DType::kBF16, {k, n}})};
    const TensorRef out = contiguous_ref(nullptr, {DType::kBF16, {m, n}});
    Target target;
    target.n_threads = threads;
    return find_kernel("dot_amx")->workspace_bytes(
        {.attrs = &attrs, .in = in, .out = std::span(&out, 1), .target = &target});
  };
  for (int i = 0; i < 2000; ++i) {
    const int64_t m = pick(rng, 1, 2000), n = pick(rng, 1, 900), k = pick(rng, 1, 5000);
    const int threads = static_cast<int>(pick(rng, 1, 16));
    const int64_t whole = bytes(m, n, k, threads);
    ASSERT_LE(bytes(pick(rng, 1, m), n, k, threads), whole) << m << " " << n << " " << k;
    ASSERT_LE(bytes(m, pick(rng, 1, n), k, threads), whole) << m << " " << n << " " << k;
    ASSERT_LE(bytes(m, n, pick(rng, 1, k), threads), whole) << m << " " << n << " " << k;
  }
}

TEST(DotAmx, LeavesTheRestToOthers) {
  const auto supports = [](const Case& c, DType in) {
    Tensor a(in, c.shape(c.a_dims)), b(in, c.shape(c.b_dims)), out(c.out, c.shape(c.out_dims));
    const TensorRef refs[] = {a.ref(), b.ref()};
    const Attrs attrs = c.attrs();
    return find_kernel("dot_amx")->supports(
        {.attrs = &attrs, .in = refs, .out = std::span(&out.ref(), 1)});
  };
  Case c;
  c.m = 17, c.n = 20, c.k = 40;
  EXPECT_TRUE(supports(c, DType::kBF16));
  EXPECT_FALSE(supports(c, DType::kF32));
  EXPECT_FALSE(supports(c, DType::kF16));
  c.m = 1;  // of one order, whatever the extents
  EXPECT_TRUE(supports(c, DType::kBF16));
  c.k = 44, c.shards = 8;
  EXPECT_FALSE(supports(c, DType::kBF16));
}

}  // namespace
}  // namespace tegula
