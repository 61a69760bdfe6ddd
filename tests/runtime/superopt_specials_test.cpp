// The trial of rewritings (superopt_trial.h) sees bits of special values in every float
// dtype, and in one parameter where a NaN of another hides it.
#include <gtest/gtest.h>

#include "tegula/ops/conv.h"
#include "tegula/ops/math.h"
#include "tegula/runtime/superopt_trial.h"

namespace tegula {
namespace {

template <class Build>
Module made(Build&& build) {
  Module m;
  Builder b(m, "f");
  b.result("y", build(b));
  EXPECT_TRUE(b.finish_into_module().ok());
  return m;
}

bool has_bits(const Module& before, const Module& after) {
  CompileOptions options;
  options.tune.directory = ::testing::TempDir();  // nobody's cache
  MachineTrial trial(options, nullptr);
  const Module pair[] = {before, after};
  const auto timed = trial.time(pair, 0);
  EXPECT_TRUE(timed.ok()) << timed.error().message;
  return timed.ok() && (*timed)[0].has_bits_of_first && (*timed)[1].has_bits_of_first;
}

TEST(SuperoptSpecials, ZerosOfAnEnlargedKernelAreSeenInEveryDtype) {
  for (const DType t : {DType::kF32, DType::kBF16, DType::kF16}) {
    const auto convolution = [t](bool is_enlarged) {
      return made([&](Builder& b) {
        const Var x = b.param("x", {t, {1, 3, 9, 9}}), a = b.weight("a", {t, {4, 3, 1, 1}});
        if (!is_enlarged) return conv(x, a);
        ConvOptions same;
        same.lo = same.hi = {1, 1};
        return conv(x, pad(pad(a, 2, 1, 1, 0, 0), 3, 1, 1, 0, 0), same);
      });
    };
    EXPECT_TRUE(has_bits(convolution(false), convolution(false))) << dtype_name(t);
    EXPECT_FALSE(has_bits(convolution(false), convolution(true))) << dtype_name(t);
  }
}

TEST(SuperoptSpecials, ANanOfOneParameterHidesNothingOfAnother) {
  const auto sum = [](bool has_zeros) {
    return made([&](Builder& b) {
      const Var x = b.param("x", {DType::kF32, {40}}), z = b.param("z", {DType::kF32, {40}});
      const Var of_z = reduce_sum(z, {0}, true);
      const Var of_x = x * 0.0;  // a zero, but of an infinity
      return has_zeros ? of_z + reduce_sum(abs(of_x), {0}, true)
                       : of_z + reduce_sum(min(abs(x), 0.0), {0}, true);
    });
  };
  EXPECT_FALSE(has_bits(sum(true), sum(false)));
}

}  // namespace
}  // namespace tegula
