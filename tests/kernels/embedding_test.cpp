// embedding and its gradient: equal to loops, bit for bit.
#include "tests/kernels/strided.h"

namespace tegula {
namespace {
using testing::pick;
using testing::Rng;
using testing::Tensor;

TEST(Embedding, CopiesRowsAndSumsThemInOrder) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    const DType dtypes[] = {DType::kF32, DType::kF32, DType::kBF16, DType::kF16};
    const DType t = dtypes[seed % 4];
    const int64_t a = pick(rng, 0, 5), b = pick(rng, 1, 40), n = pick(rng, 1, 9);
    const int64_t d = pick(rng, 1, 150);
    Tensor table(t, {n, d}, rng, true),
        ids(pick(rng, 0, 1) ? DType::kI32 : DType::kI64, {a, b}, rng, true);
    Tensor y(t, {a, b, d}, rng, false), grad(t, {a, b, d}, rng, true),
        d_table(t, {n, d}, rng, false);
    table.fill_random(rng), grad.fill_random(rng), y.fill(777), d_table.fill(777);
    for (int64_t i = 0; i < a * b; ++i) ids.put(i, static_cast<double>(pick(rng, -1, n)));

    const TensorRef in[] = {table.ref(), ids.ref()}, in_bwd[] = {grad.ref(), ids.ref()};
    const int threads = static_cast<int>(pick(rng, 1, 3));
    testing::run_kernel(*find_kernel("embedding_rows"), {}, in, std::span(&y.ref(), 1), threads);
    const auto counted = testing::run_kernel(*find_kernel("embedding_bwd_rows"), {}, in_bwd,
                                             std::span(&d_table.ref(), 1), threads);
    std::vector<float> sums(static_cast<size_t>(n * d));
    for (int64_t i = 0; i < a * b; ++i) {
      const auto id = static_cast<int64_t>(ids.at(i));
      const bool inside = id >= 0 && id < n;
      for (int64_t j = 0; j < d; ++j) {
        ASSERT_EQ(y.at(i * d + j), inside ? table.at(id * d + j) : 0);
        if (inside) sums[static_cast<size_t>(id * d + j)] += static_cast<float>(grad.at(i * d + j));
      }
    }
    for (int64_t i = 0; i < n * d; ++i) {
      Tensor want(t, {});
      want.put(0, sums[static_cast<size_t>(i)]);
      ASSERT_EQ(d_table.at(i), want.at(0)) << i;
    }
    EXPECT_EQ(counted.math_flops, ids.numel() * d);
  }
}

}  // namespace
}  // namespace tegula
