// Attention's kernels against plain double loops, with every option; equal bits for all threads and
// instruction sets; FLOPs counted exactly.
#include <cmath>

#include "tests/kernels/attention_problem.h"

namespace tegula {
namespace {
using testing::Case;
using testing::define;
using testing::expect_close;
using testing::pick;
using testing::Problem;
using testing::Result4;
using testing::Rng;
using testing::Tensor;

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
  c.causal = true;
  for (int64_t n : {63, 64, 65, 84, 85, 129}) {
    c.sq = c.sk = n, c.d = c.dv = n == 84 ? 32 : 16;  // whole tiles and others
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

// Scores that rise by far more than an exponent holds, within a chunk of keys and from one to the
// next: a row's m moves again and again, on the mask's edge as elsewhere.
void check_growing_scores(const Kernels& kernels, DType dtype) {
  for (bool causal : {false, true}) {
    Rng rng(6);
    Case c;
    c.dtype = dtype, c.sq = 40, c.sk = 1200, c.d = 16, c.causal = causal;
    Problem p(c, rng);
    for (int64_t i = 0; i < p.q.numel(); ++i) p.q.put(i, 1 + p.q.at(i) / 16);
    for (int64_t i = 0; i < p.k.numel(); ++i) {
      const int64_t key = i / c.d;
      p.k.put(i, static_cast<double>(key) * (1 + p.k.at(i) / 16) / 4);
    }
    p.settle();
    Tensor o(c.dtype, {1, c.sq, 1, c.dv}, rng, false), lse(DType::kF32, {1, 1, c.sq}, rng, false);
    check_forward(kernels, p, define<double>(p), define<float>(p), o, lse);
  }
}
TEST(Attention, ScoresMayGrow) { check_growing_scores(kFlash, DType::kF32); }

// Keys and values in half the bytes, beside queries, sums and results in f32.
TEST(Attention, KeysInHalvesBesideQueriesInF32) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    Rng rng(seed);
    Case c = random_case(rng);
    c.dtype = DType::kF32, c.narrow = seed % 2 ? DType::kBF16 : DType::kF16;
    const Problem p(c, rng);
    Tensor o(c.dtype, {c.b, c.sq, c.hk * c.g, c.dv}, rng, false),
        lse(DType::kF32, {c.b, c.hk * c.g, c.sq}, rng, false);
    SCOPED_TRACE(c.name());
    check_forward(kFlash, p, define<double>(p), define<float>(p), o, lse);
    if (HasFailure()) return;
  }
}

TEST(Attention, InTilesScoresMayGrow) { check_growing_scores(kAmx, DType::kBF16); }

// m waits for a score that is not -inf, in the tiles that a mask cuts and in whole ones.
TEST(Attention, InTilesScoresMayBeginWithMinusInfinity) {
  for (const int64_t n : {5, 40, 100, 530}) {
    Rng rng(7);
    Case c;
    c.dtype = DType::kBF16, c.sq = 70, c.sk = 600, c.d = 16, c.left = n == 5 ? 560 : -1;
    Problem p(c, rng);
    for (int64_t i = 0; i < c.sq; ++i) p.q.put(i * c.d, 1);
    for (int64_t j = 0; j < n; ++j) p.k.put(j * c.d, -INFINITY);
    p.settle();
    Tensor o(c.dtype, {1, c.sq, 1, c.dv}, rng, false), lse(DType::kF32, {1, 1, c.sq}, rng, false);
    check_forward(kAmx, p, define<double>(p), define<float>(p), o, lse);
  }
}

// Rows of a tile are looked at together where scores grew: one of NaN must not stand before others.
TEST(Attention, InTilesARowOfNanHidesNoOther) {
  Rng rng(8);
  Case c;
  c.dtype = DType::kBF16, c.sq = 40, c.sk = 600, c.d = 16;
  Problem p(c, rng);
  for (int64_t i = 0; i < p.q.numel(); ++i) p.q.put(i, 1 + p.q.at(i) / 16);
  for (int64_t i = 0; i < p.k.numel(); ++i) {
    const int64_t key = i / c.d;
    p.k.put(i, static_cast<double>(key) * (1 + p.k.at(i) / 16) / 4);
  }
  const auto run = [&](Tensor& o) {
    p.settle();
    Tensor lse(DType::kF32, {1, 1, c.sq}, rng, false);
    const TensorRef in[] = {p.q.ref(), p.k.ref(), p.v.ref()}, out[] = {o.ref(), lse.ref()};
    testing::run_kernel(*find_kernel("attention_amx"), c.attrs(), in, out, 2,
                        kernel::isa_table_of(Isa::kPortable)->attention_fwd_amx);
  };
  Tensor plain(c.dtype, {1, c.sq, 1, c.dv}, rng, false), o(c.dtype, {1, c.sq, 1, c.dv}, rng, false);
  run(plain);
  for (const int64_t row : {0, 31}) p.q.put(row * c.d, NAN);
  run(o);
  for (int64_t i = 0; i < c.sq; ++i)
    for (int64_t e = 0; e < c.dv; ++e) {
      const int64_t at = i * c.dv + e;
      if (i == 0 || i == 31) {
        EXPECT_TRUE(std::isnan(o.at(at))) << i;
      } else {
        EXPECT_EQ(o.at(at), plain.at(at)) << i;
      }
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
  c.sq = 1;  // of one order, whatever the extents
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

// Nor do blocks of them cost the backward in tiles anything.
TEST(Attention, InTilesRowsWithoutKeysAreNoWork) {
  const auto executed = [](int64_t sq) {
    Rng rng(2);
    Case c;
    c.dtype = DType::kBF16, c.sq = sq, c.sk = 1, c.causal = true;
    const Problem p(c, rng);
    const Tensor o(c.dtype, {1, c.sq, 1, c.dv}), lse(DType::kF32, {1, 1, c.sq});
    const Tensor dq(c.dtype, {1, c.sq, 1, c.d});
    const Tensor dk(c.dtype, {1, c.sk, 1, c.d}), dv(c.dtype, {1, c.sk, 1, c.dv});
    const TensorRef in[] = {p.q.ref(), p.k.ref(), p.v.ref(), o.ref(), lse.ref(), p.d_o.ref()};
    const TensorRef out[] = {dq.ref(), dk.ref(), dv.ref()};
    return testing::run_kernel(*find_kernel("attention_bwd_amx"), c.attrs(), in, out, 2,
                               kernel::isa_table_of(Isa::kPortable)->attention_bwd_amx)
        .executed_flops;
  };
  EXPECT_EQ(executed(128), executed(384));
}

// A scale so small that its reciprocal is infinite: all keys weigh alike.
TEST(Attention, ATinyScaleMakesAMean) {
  Rng rng(4);
  Case c;
  c.sq = 5, c.sk = 70;
  const Problem p(c, rng);
  Tensor o(c.dtype, {1, c.sq, 1, c.dv}), lse(DType::kF32, {1, 1, c.sq});
  const TensorRef in[] = {p.q.ref(), p.k.ref(), p.v.ref()}, out[] = {o.ref(), lse.ref()};
  Attrs attrs = c.attrs();
  attrs.set("scale", 1e-40);
  testing::run_kernel(*find_kernel("attention_flash"), attrs, in, out, 2);
  for (int64_t e = 0; e < c.dv; ++e) {
    double mean = 0;
    for (int64_t j = 0; j < c.sk; ++j) mean += p.v.at(j * c.dv + e) / static_cast<double>(c.sk);
    EXPECT_NEAR(o.at(e), mean, 1e-6);
  }
  EXPECT_NEAR(lse.at(0), std::log(70.0), 1e-6);
}

// 0 times a NaN is one: rows that do not see the key must not be touched by it, nor may keys by the
// gradients of rows that do not see them.
TEST(Attention, AHiddenNanStaysHidden) {
  Rng rng(3);
  Case c;
  c.sq = c.sk = 20, c.causal = true;
  Problem p(c, rng);
  for (int64_t e = 0; e < c.dv; ++e) p.v.put(12 * c.dv + e, NAN);
  p.settle();
  Tensor o(c.dtype, {1, 20, 1, 8}), lse(DType::kF32, {1, 1, 20});
  Tensor dq(c.dtype, {1, 20, 1, 8}), dk(c.dtype, {1, 20, 1, 8}), dv(c.dtype, {1, 20, 1, 8});
  const TensorRef in[] = {p.q.ref(), p.k.ref(), p.v.ref(), o.ref(), lse.ref(), p.d_o.ref()};
  const TensorRef out[] = {o.ref(), lse.ref()}, grads[] = {dq.ref(), dk.ref(), dv.ref()};
  testing::run_kernel(*find_kernel("attention_flash"), c.attrs(), {in, 3}, out, 2);
  testing::run_kernel(*find_kernel("attention_bwd_flash"), c.attrs(), in, grads, 2);
  for (int64_t i = 0; i < 20; ++i) {
    EXPECT_EQ(std::isnan(o.at(i * 8)), i >= 12) << i;
    EXPECT_EQ(std::isnan(dq.at(i * 8)), i >= 12) << i;
    EXPECT_FALSE(std::isnan(lse.at(i))) << i;
    EXPECT_FALSE(std::isnan(dv.at(i * 8))) << i;  // weights are finite
  }
}

}  // namespace
}  // namespace tegula
