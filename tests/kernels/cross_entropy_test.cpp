// linear_cross_entropy and its gradient against double loops.
#include "tegula/kernels/cpu/common/cross_entropy.h"

#include <cmath>

#include "tests/kernels/strided.h"

namespace tegula {
namespace {
using testing::pick;
using testing::Rng;
using testing::Tensor;

struct Truth {
  std::vector<double> lse, picked, dx, dw;
};

Truth define(const Tensor& x, const Tensor& w, const Tensor& ids, const Tensor& lse,
             const Tensor& dlse, const Tensor& dpicked, int64_t n, int64_t v, int64_t d,
             bool transposed, int64_t ignored) {
  const auto at = [&](int64_t j, int64_t k) { return transposed ? k * v + j : j * d + k; };
  Truth t;
  t.dx.resize(static_cast<size_t>(n * d)), t.dw.resize(static_cast<size_t>(v * d));
  for (int64_t i = 0; i < n; ++i) {
    std::vector<double> logits;
    double top = -INFINITY, sum = 0;
    for (int64_t j = 0; j < v; ++j) {
      double acc = 0;
      for (int64_t k = 0; k < d; ++k) acc += x.at(i * d + k) * w.at(at(j, k));
      logits.push_back(acc), top = std::max(top, acc);
    }
    for (double l : logits) sum += std::exp(l - top);
    auto id = static_cast<int64_t>(ids.at(i));
    if (id == ignored) id = -1;
    t.lse.push_back(std::log(sum) + top);
    t.picked.push_back(id >= 0 && id < v ? logits[static_cast<size_t>(id)] : 0);
    for (int64_t j = 0; j < v; ++j) {
      const double g = dlse.at(i) * std::exp(logits[static_cast<size_t>(j)] - lse.at(i)) +
                       (id == j ? dpicked.at(i) : 0);
      for (int64_t k = 0; k < d; ++k) {
        t.dx[static_cast<size_t>(i * d + k)] += g * w.at(at(j, k));
        t.dw[static_cast<size_t>(at(j, k))] += g * x.at(i * d + k);
      }
    }
  }
  return t;
}

// Rounding of sums of n terms of size about 1, and of the output (in tiles of terms, too, which
// add up as errors at random do).
void expect_near(const Tensor& t, const std::vector<double>& want, int64_t n) {
  double scale = 1;
  for (double v : want) scale = std::max(scale, std::fabs(v));
  const double tolerance =
      (epsilon(t.ref().dtype) + static_cast<double>(n) * epsilon(DType::kF32)) * scale;
  for (size_t i = 0; i < want.size(); ++i)
    ASSERT_NEAR(t.at(static_cast<int64_t>(i)), want[i], tolerance) << i;
}

struct Kernels {
  const char *fwd, *bwd, *both;
  void (*kernel::IsaTable::*run_fwd)(const KernelCall&);
  void (*kernel::IsaTable::*run_bwd)(const KernelCall&);
  void (*kernel::IsaTable::*run_both)(const KernelCall&);
  DType dtype;  // of the last
};
const Kernels kVectors = {"linear_cross_entropy_tiled",
                          "linear_cross_entropy_bwd_tiled",
                          "linear_cross_entropy_grads_kept",
                          &kernel::IsaTable::linear_cross_entropy,
                          &kernel::IsaTable::linear_cross_entropy_bwd,
                          &kernel::IsaTable::cross_entropy_grads,
                          DType::kF32};
const Kernels kNarrow = [] {
  Kernels k = kVectors;
  k.dtype = DType::kBF16;
  return k;
}();
// In AMX's tiles, emulated where there are none.
const Kernels kTiles = {"linear_cross_entropy_amx",
                        "linear_cross_entropy_bwd_amx",
                        "linear_cross_entropy_grads_amx",
                        &kernel::IsaTable::cross_entropy_amx,
                        &kernel::IsaTable::cross_entropy_bwd_amx,
                        &kernel::IsaTable::cross_entropy_grads_amx,
                        DType::kBF16};

void check(int64_t a, int64_t b, int64_t v, int64_t d, DType dtype, Rng& rng,
           const Kernels& kernels = kVectors) {
  const bool transposed = pick(rng, 0, 1) == 1;
  Attrs attrs;
  if (transposed) attrs.set("transposed", true);
  const int64_t ignored = pick(rng, -1, v - 1);
  if (ignored >= 0) attrs.set("ignore_index", ignored);
  const std::vector<int64_t> w_shape = transposed ? std::vector{d, v} : std::vector{v, d};
  SCOPED_TRACE(cat(a, "x", b, " tokens, v=", v, " d=", d, " ", dtype_name(dtype)));
  const std::vector<int64_t> lead = {a, b};
  const int64_t n = a * b;
  Tensor x(dtype, {a, b, d}, rng, true), w(dtype, w_shape, rng, true);
  Tensor ids(pick(rng, 0, 1) ? DType::kI32 : DType::kI64, lead, rng, true);
  Tensor lse(DType::kF32, lead, rng, false), picked(DType::kF32, lead, rng, false);
  Tensor dlse(DType::kF32, lead, rng, true), dpicked(DType::kF32, lead, rng, true);
  Tensor dx(dtype, {a, b, d}, rng, false), dw(dtype, w_shape, rng, false);
  for (Tensor* t : {&x, &w, &dlse, &dpicked}) t->fill_random(rng);
  for (int64_t i = 0; i < n; ++i) ids.put(i, static_cast<double>(pick(rng, -1, v)));
  for (int64_t i = 0; i < x.numel(); ++i) x.put(i, x.at(i) / std::sqrt(static_cast<double>(d)));

  const TensorRef in[] = {x.ref(), w.ref(), ids.ref()}, out[] = {lse.ref(), picked.ref()};
  const TensorRef in_bwd[] = {x.ref(), w.ref(), ids.ref(), lse.ref(), dlse.ref(), dpicked.ref()};
  const TensorRef out_bwd[] = {dx.ref(), dw.ref()};
  std::vector<double> first;
  for (Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAmx}) {
    const kernel::IsaTable* table = kernel::isa_table_of(isa);
    for (int threads : {1, 3}) {
      if (table == nullptr) continue;
      const auto f = testing::run_kernel(*find_kernel(kernels.fwd), attrs, in, out, threads,
                                         table->*kernels.run_fwd);
      EXPECT_EQ(f.math_flops, n * (v * (2 * d + 4) + 2));
      const auto g = testing::run_kernel(*find_kernel(kernels.bwd), attrs, in_bwd, out_bwd, threads,
                                         table->*kernels.run_bwd);
      EXPECT_EQ(g.math_flops, n * v * (6 * d + 4));
      std::vector<double> all;
      for (const Tensor* t : {&lse, &picked, &dx, &dw})
        for (int64_t i = 0; i < t->numel(); ++i) all.push_back(t->at(i));
      if (first.empty()) first = all;
      ASSERT_EQ(first, all) << isa_name(isa) << " x" << threads;
    }
  }
  const Truth t = define(x, w, ids, lse, dlse, dpicked, n, v, d, transposed, ignored);
  expect_near(lse, t.lse, d), expect_near(picked, t.picked, d);
  expect_near(dx, t.dx, v + d), expect_near(dw, t.dw, n + d);
}

TEST(LinearCrossEntropy, MatchesItsDefinition) {
  for (unsigned seed = 0; seed < 30; ++seed) {
    Rng rng(seed);
    const DType dtypes[] = {DType::kF32, DType::kF32, DType::kBF16, DType::kF16};
    check(pick(rng, 1, 3), pick(rng, 1, 70), pick(rng, 1, 200), pick(rng, 1, 50), dtypes[seed % 4],
          rng);
    if (HasFailure()) return;
  }
}

TEST(LinearCrossEntropy, InTiles) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    Rng rng(seed);
    check(pick(rng, 1, 3), pick(rng, 17, 90), pick(rng, 1, 200), pick(rng, 1, 80), DType::kBF16,
          rng, kTiles);
    if (HasFailure()) return;
  }
}

// Columns and tokens beyond a chunk, and beyond a task.
TEST(LinearCrossEntropy, InTilesOfSeveralChunks) {
  Rng rng(5);
  check(2, 35, 1300, 40, DType::kBF16, rng, kTiles);
  check(1, 17, 2049, 33, DType::kBF16, rng, kTiles);
}

// The workspace that a run of fewer tokens lays out fits in what its plan has.
TEST(LinearCrossEntropy, RoomForFewerTokens) {
  for (int64_t most : {40, 1000, 5000, 40000, 100000}) {
    const auto call_of = [](int64_t n) {
      kernel::CrossEntropyCall c;
      c.n_tokens = n, c.d = 96, c.v = 3000;
      return c;
    };
    const int64_t room = kernel::AmxCrossEntropyWorkspace(call_of(most), true).bytes();
    for (int64_t n = 1; n < most; n += n / 7 + 1) {
      const kernel::AmxCrossEntropyWorkspace space(call_of(n), true);
      EXPECT_LE(space.bytes(), room) << n;
      EXPECT_LE((n + 31) / 32 * 32 * kernel::amx_vocab_chunk(n) * 2, space.g) << n;
      EXPECT_LE(kernel::amx_cross_entropy_grads_bytes(call_of(n)),
                kernel::amx_cross_entropy_grads_bytes(call_of(most)));
    }
  }
}

// Both directions in one call have the bits of a call each.
void check_grads(int64_t a, int64_t b, int64_t v, int64_t d, Rng& rng,
                 const Kernels& kernels = kVectors,
                 std::initializer_list<Isa> isas = {Isa::kPortable, Isa::kAvx2, Isa::kAvx512,
                                                    Isa::kAmx}) {
  SCOPED_TRACE(cat(a, "x", b, " tokens, v=", v, " d=", d));
  const std::vector<int64_t> lead = {a, b};
  Attrs attrs;
  if (v > 2) attrs.set("ignore_index", v - 2);
  const DType type = kernels.dtype;
  Tensor x(type, {a, b, d}), w(type, {v, d}), ids(DType::kI32, lead);
  Tensor dlse(DType::kF32, lead), dpicked(DType::kF32, lead);
  for (Tensor* t : {&x, &w, &dlse, &dpicked}) t->fill_random(rng);
  for (int64_t i = 0; i < a * b; ++i) ids.put(i, static_cast<double>(pick(rng, -1, v)));
  Tensor lse(DType::kF32, lead), picked(DType::kF32, lead), dx(type, {a, b, d}), dw(type, {v, d});
  const TensorRef in[] = {x.ref(), w.ref(), ids.ref()}, out[] = {lse.ref(), picked.ref()};
  const TensorRef in_bwd[] = {x.ref(), w.ref(), ids.ref(), lse.ref(), dlse.ref(), dpicked.ref()};
  const TensorRef out_bwd[] = {dx.ref(), dw.ref()};
  const auto bits = [&] {
    std::vector<double> all;
    for (const Tensor* t : {&lse, &picked, &dx, &dw})
      for (int64_t i = 0; i < t->numel(); ++i) all.push_back(t->at(i));
    return all;
  };
  const kernel::IsaTable& own = kernel::isa_table();
  testing::run_kernel(*find_kernel(kernels.fwd), attrs, in, out, 2, own.*kernels.run_fwd);
  testing::run_kernel(*find_kernel(kernels.bwd), attrs, in_bwd, out_bwd, 2, own.*kernels.run_bwd);
  const std::vector<double> apart = bits();
  const TensorRef in_both[] = {x.ref(), w.ref(), ids.ref(), dlse.ref(), dpicked.ref()};
  const TensorRef out_both[] = {lse.ref(), picked.ref(), dx.ref(), dw.ref()};
  for (Isa isa : isas) {
    const kernel::IsaTable* table = kernel::isa_table_of(isa);
    for (int threads : {1, 3}) {
      if (table == nullptr) continue;
      for (Tensor* t : {&lse, &picked, &dx, &dw})
        for (int64_t i = 0; i < t->numel(); ++i) t->put(i, NAN);
      const auto g = testing::run_kernel(*find_kernel(kernels.both), attrs, in_both, out_both,
                                         threads, table->*kernels.run_both);
      EXPECT_EQ(g.math_flops, a * b * (v * (6 * d + 8) + 2));
      ASSERT_EQ(apart, bits()) << isa_name(isa) << " x" << threads;
    }
  }
}

void check_random_grads(unsigned cases, int64_t least_tokens, const Kernels& kernels) {
  for (unsigned seed = 0; seed < cases; ++seed) {
    Rng rng(seed);
    check_grads(pick(rng, 1, 3), pick(rng, least_tokens, 90), pick(rng, 1, 300), pick(rng, 1, 80),
                rng, kernels);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(LinearCrossEntropy, InOneCall) { check_random_grads(20, 1, kVectors); }

TEST(LinearCrossEntropy, InOneCallOfBf16) {
  check_random_grads(20, 1, kNarrow);
  Rng rng(8);
  check_grads(1, 20, 9000, 40, rng, kNarrow);
  // The last columns' logits are formed again.
  check_grads(1, 300, 300001, 2, rng, kNarrow, {kernel::isa_table().isa});
}

// More columns than a pass goes over, than one panel; more tokens than are kept.
TEST(LinearCrossEntropy, InOneCallOfSeveralPasses) {
  Rng rng(6);
  check_grads(1, 20, 9000, 40, rng);
  check_grads(1, 60, 500001, 1, rng, kVectors, {kernel::isa_table().isa});
}

TEST(LinearCrossEntropy, InOneCallInTiles) {
  check_random_grads(12, 1, kTiles);
  Rng rng(7);
  check_grads(2, 35, 1300, 40, rng, kTiles);
  // Logits of two strips of tokens are kept, those of the third are formed again.
  check_grads(1, 70, 1000001, 1, rng, kTiles, {kernel::isa_table().isa});
}

TEST(LinearCrossEntropy, InOneCallRoomForFewerTokens) {
  const auto room = [](DType type, int64_t n, int64_t v, int64_t d) {
    Tensor x(type, {n, d}), w(type, {v, d}), ids(DType::kI32, {n});
    Tensor s(DType::kF32, {n});
    const TensorRef in[] = {x.ref(), w.ref(), ids.ref(), s.ref(), s.ref()};
    const TensorRef out[] = {s.ref(), s.ref(), x.ref(), w.ref()};
    const auto g = kernel::parse_cross_entropy_grads(in, out, {});
    EXPECT_TRUE(g.ok()) << g.error().message;
    return g->bytes(3);
  };
  for (DType type : {DType::kF32, DType::kBF16})
    for (int64_t most : {40, 1000, 9000})
      for (int64_t n = 1; n < most; n += n / 7 + 1)
        EXPECT_LE(room(type, n, 9000, 96), room(type, most, 9000, 96)) << n;
}

TEST(LinearCrossEntropy, ColumnsInSeveralChunks) {
  Rng rng(5);
  check(1, 3, 300, 9000, DType::kF32, rng);
}

}  // namespace
}  // namespace tegula
