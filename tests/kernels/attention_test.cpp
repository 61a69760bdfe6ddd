// Attention's kernels against plain double loops, with every option; equal bits for all threads and
// instruction sets; FLOPs counted exactly.
#include <cmath>

#include "tegula/base/philox.h"
#include "tests/kernels/strided.h"

namespace tegula {
namespace {
using testing::pick;
using testing::Rng;
using testing::Tensor;

struct Case {
  int64_t b = 1, sq = 5, sk = 5, hk = 1, g = 1, d = 8, dv = 8;
  bool causal = false;
  int64_t left = -1, right = -1;
  double softcap = 0, dropout = 0;
  bool bias = false, alibi = false, varlen = false, dlse = false;
  DType dtype = DType::kF32;
  std::string name() const {
    return cat("b", b, " sq", sq, " sk", sk, " hk", hk, " g", g, " d", d, " dv", dv,
               causal ? " causal" : "", " window ", left, ",", right, " cap ", softcap, " drop ",
               dropout, bias ? " bias" : "", alibi ? " alibi" : "", varlen ? " varlen" : "", " ",
               dtype_name(dtype));
  }
  Attrs attrs() const {
    Attrs a{{"scale", 1 / std::sqrt(static_cast<double>(d))}};
    if (causal) a.set("is_causal", true);
    if (left >= 0) a.set("window_left", left);
    if (right >= 0) a.set("window_right", right);
    if (softcap > 0) a.set("softcap", softcap);
    if (bias) a.set("bias", true);
    if (alibi) a.set("alibi", true);
    if (varlen) a.set("varlen", true);
    if (dropout > 0) a.set("dropout", dropout), a.set("stream", int64_t{3});
    return a;
  }
};

Case random_case(Rng& rng) {
  Case c;
  c.b = pick(rng, 1, 2), c.hk = pick(rng, 1, 2), c.g = pick(rng, 1, 3);
  c.sq = pick(rng, 1, 3) == 1 ? pick(rng, 1, 4) : pick(rng, 1, 150);
  c.sk = pick(rng, 0, 3) == 0 ? c.sq : pick(rng, 1, 200);
  c.d = pick(rng, 1, 40), c.dv = pick(rng, 0, 1) ? c.d : pick(rng, 1, 40);
  c.causal = pick(rng, 0, 1), c.bias = pick(rng, 0, 3) == 0, c.alibi = pick(rng, 0, 3) == 0;
  if (pick(rng, 0, 3) == 0) c.left = pick(rng, 0, 90);
  if (pick(rng, 0, 3) == 0) c.right = pick(rng, 0, 90);
  if (pick(rng, 0, 3) == 0) c.softcap = 5;
  if (pick(rng, 0, 3) == 0) c.dropout = 0.25;
  if (pick(rng, 0, 3) == 0) c.dtype = DType::kBF16;
  if (pick(rng, 0, 4) == 0) c.varlen = true, c.b = 1;
  return c;
}

// Inputs, and the definition in precision S.
struct Problem {
  Case c;
  Tensor q, k, v, d_o, dlse, bias, alibi, cu_q, cu_k, seed;
  Problem(const Case& c_, Rng& rng)
      : c(c_),
        q(c.dtype, {c.b, c.sq, c.hk * c.g, c.d}, rng, true),
        k(c.dtype, {c.b, c.sk, c.hk, c.d}, rng, true),
        v(c.dtype, {c.b, c.sk, c.hk, c.dv}, rng, true),
        d_o(c.dtype, {c.b, c.sq, c.hk * c.g, c.dv}, rng, true),
        dlse(DType::kF32, {c.b, c.hk * c.g, c.sq}, rng, true),
        bias(c.dtype,
             {pick(rng, 0, 1) ? c.b : 1, pick(rng, 0, 1) ? c.hk * c.g : 1,
              pick(rng, 0, 1) ? c.sq : 1, c.sk},
             rng, true),
        alibi(DType::kF32, {c.hk * c.g}),
        cu_q(DType::kI32, {3}),
        cu_k(DType::kI32, {3}),
        seed(DType::kI64, {}) {
    for (Tensor* t : {&q, &k, &v, &d_o, &dlse, &bias, &alibi}) t->fill_random(rng);
    cu_q.put(0, 0), cu_k.put(0, 0);
    cu_q.put(1, static_cast<double>(pick(rng, 0, c.sq))), cu_q.put(2, static_cast<double>(c.sq));
    cu_k.put(1, static_cast<double>(pick(rng, 0, c.sk))), cu_k.put(2, static_cast<double>(c.sk));
    seed.put(0, 77);
  }
  void add_options(std::vector<TensorRef>& in) const {
    if (c.bias) in.push_back(bias.ref());
    if (c.alibi) in.push_back(alibi.ref());
    if (c.varlen) in.push_back(cu_q.ref()), in.push_back(cu_k.ref());
    if (c.dropout > 0) in.push_back(seed.ref());
  }
  int64_t bias_at(int64_t b, int64_t h, int64_t i, int64_t j) const {
    const TensorRef t = bias.ref();
    const int64_t* n = t.shape;
    return (((n[0] == 1 ? 0 : b) * n[1] + (n[1] == 1 ? 0 : h)) * n[2] + (n[2] == 1 ? 0 : i)) *
               n[3] +
           j;
  }
  bool visible(int64_t i, int64_t j, int64_t& distance) const {
    distance = i + c.sk - c.sq - j;
    if (c.varlen) {
      const auto at = [](const Tensor& t, int64_t s) { return static_cast<int64_t>(t.at(s)); };
      const int64_t s = i < at(cu_q, 1) ? 0 : 1;
      if (j < at(cu_k, s) || j >= at(cu_k, s + 1)) return false;
      const int64_t n_q = at(cu_q, s + 1) - at(cu_q, s), n_k = at(cu_k, s + 1) - at(cu_k, s);
      distance = (i - at(cu_q, s) + n_k - n_q) - (j - at(cu_k, s));
    }
    return !(c.causal && distance < 0) && !(c.left >= 0 && distance > c.left) &&
           !(c.right >= 0 && -distance > c.right);
  }
};

template <class S>
struct Result4 {
  std::vector<S> o, lse, dq, dk, dv, dbias;
  int64_t pairs = 0, live = 0;
};

template <class S>
Result4<S> define(const Problem& p) {
  const Case& c = p.c;
  const int64_t h = c.hk * c.g;
  Result4<S> r;
  const auto size = [](int64_t n) { return static_cast<size_t>(n); };
  r.o.resize(size(c.b * c.sq * h * c.dv)), r.lse.resize(size(c.b * h * c.sq));
  r.dq.resize(size(c.b * c.sq * h * c.d)), r.dk.resize(size(c.b * c.sk * c.hk * c.d));
  r.dv.resize(size(c.b * c.sk * c.hk * c.dv)), r.dbias.resize(size(p.bias.numel()));
  for (int64_t b = 0; b < c.b; ++b)
    for (int64_t head = 0; head < h; ++head)
      for (int64_t i = 0; i < c.sq; ++i) {
        const int64_t hk = head / c.g, row = (b * c.sq + i) * h + head;
        std::vector<int64_t> key;
        std::vector<S> s, slope, keep;
        S top = -INFINITY, sum = 0;
        for (int64_t j = 0, distance; j < c.sk; ++j) {
          if (!p.visible(i, j, distance)) continue;
          S x = 0;
          for (int64_t e = 0; e < c.d; ++e)
            x += static_cast<S>(p.q.at(row * c.d + e)) *
                 static_cast<S>(p.k.at(((b * c.sk + j) * c.hk + hk) * c.d + e));
          x *= static_cast<S>(1 / std::sqrt(static_cast<double>(c.d)));
          slope.push_back(1);
          if (c.softcap > 0) {
            const S t = std::tanh(x / static_cast<S>(c.softcap));
            x = static_cast<S>(c.softcap) * t, slope.back() = 1 - t * t;
          }
          if (c.bias) x += static_cast<S>(p.bias.at(p.bias_at(b, head, i, j)));
          if (c.alibi) x -= static_cast<S>(p.alibi.at(head)) * static_cast<S>(std::abs(distance));
          key.push_back(j), s.push_back(x), top = std::max(top, x);
          keep.push_back(c.dropout == 0 ? 1
                         : philox_uniform(77, 3,
                                          static_cast<uint64_t>(((b * h + head) * c.sq + i) * c.sk +
                                                                j)) >= c.dropout
                             ? static_cast<S>(1 / (1 - c.dropout))
                             : 0);
        }
        const size_t lse_at = size((b * h + head) * c.sq + i);
        r.lse[lse_at] = -INFINITY;
        if (key.empty()) continue;
        r.pairs += static_cast<int64_t>(key.size()), ++r.live;
        for (S x : s) sum += std::exp(x - top);
        r.lse[lse_at] = std::log(sum) + top;
        S delta = c.dlse ? -static_cast<S>(p.dlse.at((b * h + head) * c.sq + i)) : 0;
        for (int64_t e = 0; e < c.dv; ++e) {
          S acc = 0;
          for (size_t n = 0; n < key.size(); ++n)
            acc += std::exp(s[n] - r.lse[lse_at]) * keep[n] *
                   static_cast<S>(p.v.at(((b * c.sk + key[n]) * c.hk + hk) * c.dv + e));
          r.o[size(row * c.dv + e)] = acc;
          delta += acc * static_cast<S>(p.d_o.at(row * c.dv + e));
        }
        for (size_t n = 0; n < key.size(); ++n) {
          const int64_t at = (b * c.sk + key[n]) * c.hk + hk;
          const S w = std::exp(s[n] - r.lse[lse_at]);
          S dp = 0;
          for (int64_t e = 0; e < c.dv; ++e) {
            const S g = static_cast<S>(p.d_o.at(row * c.dv + e));
            dp += g * static_cast<S>(p.v.at(at * c.dv + e));
            r.dv[size(at * c.dv + e)] += w * keep[n] * g;
          }
          const S db = w * (dp * keep[n] - delta);
          r.dbias[size(p.bias_at(b, head, i, key[n]))] += db;
          const S ds = db * slope[n] * static_cast<S>(1 / std::sqrt(static_cast<double>(c.d)));
          for (int64_t e = 0; e < c.d; ++e) {
            r.dq[size(row * c.d + e)] += ds * static_cast<S>(p.k.at(at * c.d + e));
            r.dk[size(at * c.d + e)] += ds * static_cast<S>(p.q.at(row * c.d + e));
          }
        }
      }
  return r;
}

// Error at most twice the naive f32 loops', plus roundings of the stored inputs and outputs.
template <class V, class W>
void expect_close(const Tensor& got, const V& truth, const W& naive, DType dtype,
                  const std::string& what) {
  double worst = 0, allowed = 0, largest = 0;
  for (size_t i = 0; i < truth.size(); ++i) {
    if (std::isinf(truth[i])) {
      ASSERT_EQ(got.at(static_cast<int64_t>(i)), truth[i]) << what;
      continue;
    }
    const double e = std::fabs(got.at(static_cast<int64_t>(i)) - truth[i]);
    ASSERT_FALSE(std::isnan(e)) << what << " at " << i;
    worst = std::max(worst, e), largest = std::max(largest, std::fabs(truth[i]));
    allowed = std::max(allowed, std::fabs(static_cast<double>(naive[i]) - truth[i]));
  }
  EXPECT_LE(worst, 2 * allowed + 2 * epsilon(dtype) * std::max(largest, 1.0)) << what;
}

using Entry = void (*kernel::IsaTable::*)(const KernelCall&);
struct Kernels {
  const char *forward, *backward;
  Entry forward_entry, backward_entry;
};
const Kernels kFlash = {"attention_flash", "attention_bwd_flash", &kernel::IsaTable::attention_fwd,
                        &kernel::IsaTable::attention_bwd};
const Kernels kAmx = {"attention_amx", "attention_bwd_amx", &kernel::IsaTable::attention_fwd_amx,
                      &kernel::IsaTable::attention_bwd_amx};
constexpr Isa kIsas[] = {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAmx};

// Bits after the portable single thread equal bits on every other set and count.
void check_forward(const Kernels& kernels, const Problem& p, const Result4<double>& truth,
                   const Result4<float>& naive, Tensor& o, Tensor& lse) {
  const Case& c = p.c;
  std::vector<TensorRef> in = {p.q.ref(), p.k.ref(), p.v.ref()};
  p.add_options(in);
  const TensorRef out[] = {o.ref(), lse.ref()};
  const KernelDef& def = *find_kernel(kernels.forward);
  const Attrs attrs = c.attrs();
  std::vector<double> first;
  for (Isa isa : kIsas) {
    const kernel::IsaTable* table = kernel::isa_table_of(isa);
    for (int threads : {1, 3}) {
      if (table == nullptr) continue;
      o.fill(777), lse.fill(777);
      const auto n =
          testing::run_kernel(def, attrs, in, out, threads, table->*kernels.forward_entry);
      EXPECT_EQ(n.math_flops, truth.pairs * (2 * c.d + 1 + (c.softcap > 0 ? 3 : 0) + c.bias +
                                             2 * c.alibi + 4 + (c.dropout > 0) + 2 * c.dv) +
                                  truth.live * (3 + c.dv));
      EXPECT_GE(n.executed_flops, n.math_flops);
      std::vector<double> all;
      for (int64_t i = 0; i < o.numel(); ++i) all.push_back(o.at(i));
      for (int64_t i = 0; i < lse.numel(); ++i) all.push_back(lse.at(i));
      if (first.empty()) first = all;
      ASSERT_EQ(first, all) << isa_name(isa) << " x" << threads;
    }
  }
  expect_close(o, truth.o, naive.o, c.dtype, "o");
  expect_close(lse, truth.lse, naive.lse, DType::kF32, "lse");
}

void check_backward(const Kernels& kernels, const Problem& p, const Result4<double>& truth,
                    const Result4<float>& naive, const Tensor& o, const Tensor& lse, Rng& rng) {
  const Case& c = p.c;
  Tensor dq(c.dtype, {c.b, c.sq, c.hk * c.g, c.d}, rng, false);
  Tensor dk(c.dtype, {c.b, c.sk, c.hk, c.d}, rng, false);
  Tensor dv(c.dtype, {c.b, c.sk, c.hk, c.dv}, rng, false);
  std::vector<TensorRef> in = {p.q.ref(), p.k.ref(), p.v.ref(), o.ref(), lse.ref(), p.d_o.ref()};
  p.add_options(in);
  Attrs attrs = c.attrs();
  if (c.dlse) attrs.set("dlse", true), in.push_back(p.dlse.ref());
  const TensorRef bias = p.bias.ref();
  Tensor dbias(c.dtype, std::vector<int64_t>(bias.shape, bias.shape + 4), rng, false);
  std::vector<TensorRef> out = {dq.ref(), dk.ref(), dv.ref()};
  if (c.bias) out.push_back(dbias.ref());
  const KernelDef& def = *find_kernel(kernels.backward);
  std::vector<double> first;
  for (Isa isa : kIsas) {
    const kernel::IsaTable* table = kernel::isa_table_of(isa);
    for (int threads : {1, 3}) {
      if (table == nullptr) continue;
      for (Tensor* t : {&dq, &dk, &dv, &dbias}) t->fill(777);
      const auto n =
          testing::run_kernel(def, attrs, in, out, threads, table->*kernels.backward_entry);
      EXPECT_EQ(n.math_flops,
                truth.pairs * (6 * c.d + 4 * c.dv + 1 + (c.softcap > 0 ? 6 : 0) + 2 * c.bias +
                               2 * c.alibi + 5 + (c.dropout > 0 ? 2 : 0)) +
                    truth.live * (2 * c.dv + c.dlse));
      std::vector<double> all;
      for (const Tensor* t : {&dq, &dk, &dv, &dbias})
        for (int64_t i = 0; i < t->numel(); ++i) all.push_back(t->at(i));
      if (first.empty()) first = all;
      ASSERT_EQ(first, all) << isa_name(isa) << " x" << threads;
    }
  }
  // o was rounded to its dtype before delta was formed from it.
  expect_close(dq, truth.dq, naive.dq, c.dtype, "dq");
  expect_close(dk, truth.dk, naive.dk, c.dtype, "dk");
  expect_close(dv, truth.dv, naive.dv, c.dtype, "dv");
  if (c.bias) expect_close(dbias, truth.dbias, naive.dbias, c.dtype, "dbias");
}

void check_case(const Case& c, Rng& rng, const Kernels& kernels = kFlash) {
  SCOPED_TRACE(c.name());
  const Problem p(c, rng);
  const auto truth = define<double>(p);
  const auto naive = define<float>(p);
  Tensor o(c.dtype, {c.b, c.sq, c.hk * c.g, c.dv}, rng, false);
  Tensor lse(DType::kF32, {c.b, c.hk * c.g, c.sq}, rng, false);
  check_forward(kernels, p, truth, naive, o, lse);
  if (::testing::Test::HasFailure()) return;
  check_backward(kernels, p, truth, naive, o, lse, rng);
}

TEST(Attention, MatchesItsDefinitionOnRandomCases) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    Case c = random_case(rng);
    c.dlse = seed % 3 == 0;
    check_case(c, rng);
    if (HasFailure()) return;
  }
}

TEST(Attention, MatchesItsDefinitionAtBlockEdges) {
  Rng rng(1);
  Case c;
  c.d = c.dv = 16, c.causal = true;
  for (int64_t n : {63, 64, 65, 84, 85, 129}) {
    c.sq = c.sk = n;
    check_case(c, rng);
    if (HasFailure()) return;
  }
}

TEST(Attention, InTilesMatchesItsDefinitionOnRandomCases) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    Case c;
    c.dtype = DType::kBF16;
    c.b = pick(rng, 1, 2), c.hk = pick(rng, 1, 2), c.g = pick(rng, 1, 3);
    c.sq = pick(rng, 16, 170), c.sk = pick(rng, 0, 3) == 0 ? c.sq : pick(rng, 1, 330);
    c.d = pick(rng, 1, 70), c.dv = pick(rng, 0, 1) ? c.d : pick(rng, 1, 70);
    c.causal = pick(rng, 0, 1), c.dlse = seed % 3 == 0;
    if (pick(rng, 0, 3) == 0) c.left = pick(rng, 0, 90);
    if (pick(rng, 0, 3) == 0) c.right = pick(rng, 0, 90);
    if (pick(rng, 0, 4) == 0) c.varlen = true, c.b = 1;
    check_case(c, rng, kAmx);
    if (HasFailure()) return;
  }
}

TEST(Attention, InTilesMatchesItsDefinitionAtBlockEdges) {
  Rng rng(4);
  Case c;
  c.dtype = DType::kBF16, c.causal = true;
  for (int64_t n : {16, 32, 33, 128, 129, 256, 257, 520}) {
    c.sq = c.sk = n, c.d = c.dv = n % 2 ? 33 : 16;
    check_case(c, rng, kAmx);
    if (HasFailure()) return;
  }
}

TEST(Attention, InTilesLeavesTheRestToOthers) {
  Rng rng(5);
  Case c;
  const auto supports = [&](const char* name) {
    const Problem p(c, rng);
    std::vector<TensorRef> in = {p.q.ref(), p.k.ref(), p.v.ref()};
    p.add_options(in);
    const Tensor o(c.dtype, {c.b, c.sq, c.hk * c.g, c.dv});
    const Tensor lse(DType::kF32, {c.b, c.hk * c.g, c.sq});
    const TensorRef out[] = {o.ref(), lse.ref()};
    const Attrs attrs = c.attrs();
    return find_kernel(name)->supports({.attrs = &attrs, .in = in, .out = out});
  };
  c.sq = 16;
  EXPECT_FALSE(supports("attention_amx"));
  c.dtype = DType::kBF16;
  EXPECT_TRUE(supports("attention_amx"));
  c.sq = 8;  // decoding is bound by memory
  EXPECT_FALSE(supports("attention_amx"));
  c.g = 2;
  EXPECT_TRUE(supports("attention_amx"));
  c.softcap = 5;
  EXPECT_FALSE(supports("attention_amx"));
  EXPECT_TRUE(supports("attention_flash"));
}

TEST(Attention, RowsWithoutKeysGiveZeros) {
  Rng rng(2);
  Case c;
  c.sq = 70, c.sk = 3, c.causal = true;
  const Problem p(c, rng);
  Tensor o(c.dtype, {1, c.sq, 1, c.dv}), lse(DType::kF32, {1, 1, c.sq});
  const TensorRef in[] = {p.q.ref(), p.k.ref(), p.v.ref()}, out[] = {o.ref(), lse.ref()};
  testing::run_kernel(*find_kernel("attention_flash"), c.attrs(), in, out, 2);
  for (int64_t i = 0; i < 67; ++i) {
    EXPECT_EQ(lse.at(i), -INFINITY);
    for (int64_t e = 0; e < c.dv; ++e) EXPECT_EQ(o.at(i * c.dv + e), 0);
  }
  EXPECT_TRUE(std::isfinite(lse.at(67)));
}

}  // namespace
}  // namespace tegula
