// A user's mistake with the builder is an error of the builder, never a crash and never passed.
#include <gtest/gtest.h>

#include "tegula/ops/autodiff.h"
#include "tegula/ops/conv.h"
#include "tegula/ops/indexing.h"
#include "tegula/ops/layers.h"
#include "tegula/ops/math.h"
#include "tegula/ops/table.h"

namespace tegula {
namespace {

// The builder's error after make(x) of an x: f32[2,3].
template <class Make>
std::string error_of(Make&& make) {
  Module m;
  Builder b(m, "f");
  const Var y = make(b.param("x", {DType::kF32, {2, 3}}));
  if (y.valid()) b.result("y", y);
  const auto f = b.finish();
  return f.ok() ? "" : f.error().message;
}
void expect_error(const std::string& message, std::string_view part) {
  EXPECT_NE(message.find(part), std::string::npos) << "\"" << message << "\", expected: " << part;
}
Shape ones(int rank) {
  Shape s;
  for (int d = 0; d < rank; ++d) s.push_back(1);
  return s;
}

TEST(Misuse, DimsThatAreNotThere) {
  expect_error(error_of([](Var x) { return unsqueeze(x, -9); }), "unsqueeze: a new dim -9");
  expect_error(error_of([](Var x) { return unsqueeze(x, 7); }), "unsqueeze: a new dim 7");
  EXPECT_EQ(error_of([](Var x) { return unsqueeze(x, 2); }), "");
  EXPECT_EQ(error_of([](Var x) { return unsqueeze(x, -3); }), "");
  expect_error(error_of([](Var x) { return squeeze(x, 4); }), "squeeze: dim 4");
  expect_error(error_of([](Var x) { return transpose(x, 0, 2); }), "transpose: dims 0 and 2");
  for (const int64_t d : {int64_t{2}, int64_t{-3}, int64_t{1} << 20, int64_t{1} << 62}) {
    expect_error(error_of([&](Var x) { return reduce_mean(x, {d}); }), "reduce_mean: dims [");
    expect_error(error_of([&](Var x) { return reduce_sum(x, {d}); }), "reduce_sum: dims [");
    expect_error(error_of([&](Var x) { return reduce_max(x, {d}); }), "reduce_max: dims [");
  }
  expect_error(error_of([](Var x) { return reduce_sum(x, {0, 0}); }), "only once");
  expect_error(error_of([](Var x) { return reduce_mean(x, {0, -2}); }), "only once");
  expect_error(error_of([](Var x) { return extent(x, 5, DType::kF32); }), "there is no dim 5");
  expect_error(error_of([](Var x) { return x * static_cast<double>(x.dim(-3).bound()); }),
               "there is no dim -3");
  expect_error(error_of([](Var x) { return cumsum(x, 2); }), "cumsum: dim 2");
}

TEST(Misuse, TheNinthDim) {
  const auto with_rank = [](int rank, auto make) {
    return error_of(
        [&](Var x) { return make(reshape(slice(slice(x, 0, 0, 1), 1, 0, 1), ones(rank))); });
  };
  expect_error(with_rank(8, [](Var x) { return unsqueeze(x, 0); }), "8 dims in all");
  EXPECT_EQ(with_rank(7, [](Var x) { return unsqueeze(x, 0); }), "");
  expect_error(with_rank(8, [](Var x) { return one_hot(cast(x, DType::kI32), 3); }), "at most 7");
  expect_error(with_rank(8,
                         [](Var x) {
                           const Var i = constant(x.builder(), 0, DType::kI32);
                           return scatter_add(x, i, 0, 2);
                         }),
               "a tensor of rank 9");
  const std::vector<Dim> nine(9, Dim(1));
  expect_error(error_of([&](Var x) {
                 return x.builder().emit(
                     iota_op, {{"shape", nine}, {"dim", int64_t{0}}, {"dtype", DType::kI64}}, {});
               }),
               "more than 8 dims");
  expect_error(error_of([&](Var x) {
                 return x.builder().emit(reshape_op, {{"shape", nine}}, {x});
               }),
               "more than 8 dims");
}

TEST(Misuse, SizesBelowZeroOrPastAllMemory) {
  const int64_t huge = int64_t{1} << 62, half = int64_t{1} << 32;
  expect_error(error_of([](Var x) { return reshape(x, {-2, -3}); }), "below 0");
  expect_error(error_of([](Var x) { return broadcast(x, {-1, 2, 3}); }), "below 0");
  expect_error(error_of([](Var x) {
                 return fill(x.builder(), 1, {DType::kF32, {-4}});
               }),
               "below 0");
  expect_error(error_of([](Var x) { return iota(x.builder(), {-4}, 0, DType::kI64); }), "below 0");
  expect_error(error_of([&](Var x) { return iota(x.builder(), {huge}, 0, DType::kI64); }),
               "more than 1099511627776 elements");
  expect_error(error_of([&](Var x) {
                 return broadcast(reduce_sum(x, {0, 1}), {half, half});
               }),
               "more than 1099511627776 elements");
  // The strides of an empty tensor are products all the same.
  expect_error(error_of([&](Var x) {
                 return iota(x.builder(), {0, half, half}, 0, DType::kI64);
               }),
               "more than 1099511627776 elements");
  expect_error(error_of([](Var x) { return slice(x, 1, 0, -1); }), "below 0");
  expect_error(error_of([&](Var x) { return pad(x, 0, huge, huge, 0, 0.0); }), "pad: a size");
  expect_error(error_of([&](Var x) { return pad(x, 0, 0, 0, huge, 0.0); }), "pad: a size");
  expect_error(error_of([&](Var x) { return slice(x, 1, 0, 2, huge); }), "slice: ");
  expect_error(error_of([&](Var x) { return unfold(x, 1, 2, 2, huge, huge); }), "unfold: ");
  expect_error(error_of([&](Var x) {
                 const Var image = reshape(x, {1, 2, 3});
                 return max_pool(image, {2}, {{}, {}, {}, {huge}});
               }),
               "max_pool: dilation");
  Module m;
  Builder b(m, "f");
  b.param("w", {DType::kF32, {-1}});
  const auto f = b.finish();
  ASSERT_FALSE(f.ok());
  expect_error(f.error().message, "parameter w: a size");
}

TEST(Misuse, NumbersThatWrapAsAnIndex) {
  const int64_t past_int = (int64_t{1} << 32);  // 0, as an int
  const auto at = [&](int64_t dim, int64_t batch) {
    return error_of([&](Var x) {
      const Var ids = constant_ints(x.builder(), {0}, DType::kI32);
      return x.builder().emit(gather_op, {{"dim", dim}, {"batch", batch}}, {x, ids});
    });
  };
  EXPECT_EQ(at(0, 0), "");
  expect_error(at(past_int, 0), "gather: dim 4294967296");
  expect_error(at(0, past_int), "gather: dim 0 and 4294967296");
}

// A step of a single element says nothing, and passes whatever it is.
TEST(Misuse, StepsOfOneElement) {
  EXPECT_EQ(error_of([](Var x) { return slice(x, 1, 2, 1, int64_t{1} << 62); }), "");
  EXPECT_EQ(error_of([](Var x) {
              const Var y = slice(x, 1, 1, 0, -1);  // of none, reversed: its gradient is zeros
              return grad(reduce_sum(y, {0, 1}), std::span(&x, 1))[0];
            }),
            "");
}

}  // namespace
}  // namespace tegula
