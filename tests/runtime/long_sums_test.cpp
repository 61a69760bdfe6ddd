// Sums of f32 do not lose digits with their length: whatever is summed, along rows or columns, the
// error stays below 1e-6 of it, as NumPy's does; and bits depend on neither tiles nor threads.
#include <gtest/gtest.h>

#include <cmath>

#include "tegula/ops/norm.h"
#include "tegula/tegula.h"
#include "tegula/tile/long_sum.h"

namespace tegula {
namespace {

constexpr int64_t kLong = 1'000'000;

std::vector<float> values(int64_t n, double (*at)(int64_t)) {
  std::vector<float> v(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) v[static_cast<size_t>(i)] = static_cast<float>(at(i));
  return v;
}
double sum_of(const std::vector<float>& v, int64_t from = 0, int64_t step = 1) {
  double s = 0;
  for (size_t i = static_cast<size_t>(from); i < v.size(); i += static_cast<size_t>(step))
    s += v[i];
  return s;
}

TEST(LongSums, KeepTheirDigits) {
  Rank rank(2);
  double (*const draws[])(int64_t) = {[](int64_t) { return 0.1; }, [](int64_t) { return 0.7; },
                                      [](int64_t i) { return 0.5 + 0.5 * std::sin(i * 0.37); },
                                      [](int64_t i) { return i % 2 == 0 ? 1e3 : 1e-3; }};
  for (const auto draw : draws)
    for (const int64_t n : {int64_t{511}, int64_t{513}, int64_t{5000}, int64_t{70001}, kLong}) {
      const auto v = values(n, draw);
      Eager e(rank);
      const Var x = e.tensor({DType::kF32, {n}}, v.data());
      const auto read = [&](const Var& y, int64_t i = 0) {
        const auto r = e.read(y);
        EXPECT_TRUE(r.ok()) << r.error().message;
        return r.ok() ? double(r->as<float>()[i]) : 0;
      };
      const double want = sum_of(v);
      const auto near = [&](double have, double exact, const char* what) {
        EXPECT_NEAR(have / exact, 1, 1e-6) << what << " of " << n;
      };
      near(read(reduce_sum(x, {0})), want, "sum");
      near(read(reduce_mean(x, {0})), want / static_cast<double>(n), "mean");
      near(
          read(reduce_sum(x * x, {0})),
          [&] {
            double s = 0;
            for (const float f : v) s += double(f) * f;
            return s;
          }(),
          "sum of squares");
      if (n / 10 > kLongColumn) {
        const Var rows = reshape(x, {n / 10, 10});
        near(read(reduce_sum(rows, {0}), 3), sum_of(v, 3, 10), "column");
        near(read(reduce_sum(rows, {0, 1})), want, "both dims");
      }
    }
}

TEST(LongSums, OfRowsThatAreNormalised) {
  Rank rank(1);
  const int64_t n = 300'000;
  const auto v = values(n, [](int64_t i) { return i % 3 == 0 ? 0.1 : 0.7; });
  const auto w = values(n, [](int64_t) { return 1.0; });
  Eager e(rank);
  const Var x = e.tensor({DType::kF32, {1, n}}, v.data()),
            one = e.tensor({DType::kF32, {n}}, w.data());
  double squares = 0, exps = 0;
  const float top = 0.7f;
  for (const float f : v) squares += double(f) * f, exps += std::exp(double(f) - top);
  const double mean = sum_of(v) / static_cast<double>(n);
  double apart = 0;
  for (const float f : v) apart += (f - mean) * (f - mean);
  const auto first = [&](const Var& y) { return double(e.read(y).value().as<float>()[0]); };
  EXPECT_NEAR(first(softmax(x)) * exps / std::exp(double(v[0]) - top), 1, 2e-6);
  EXPECT_NEAR(first(logsumexp(x)) / (top + std::log(exps)), 1, 1e-6);
  EXPECT_NEAR(first(rms_norm(x, one, 0)) / (v[0] / std::sqrt(squares / static_cast<double>(n))), 1,
              2e-6);
  EXPECT_NEAR(first(layer_norm(x, one, {}, 0)) /
                  ((v[0] - mean) / std::sqrt(apart / static_cast<double>(n))),
              1, 3e-6);
  EXPECT_NEAR(first(reduce_var(x, {1}, 0)) / (apart / static_cast<double>(n)), 1, 2e-6);
}

TEST(LongSums, InfinitiesAndNanStay) {
  Rank rank(1);
  const int64_t n = 3000;
  for (const float odd : {INFINITY, -INFINITY, NAN}) {
    auto v = values(n, [](int64_t) { return 1.0; });
    v[100] = odd;
    Eager e(rank);
    const Var x = e.tensor({DType::kF32, {n}}, v.data());
    const float sum = e.read(reduce_sum(x, {0})).value().as<float>()[0];
    const float column = e.read(reduce_sum(reshape(x, {n / 2, 2}), {0})).value().as<float>()[0];
    EXPECT_TRUE(std::isnan(odd) ? std::isnan(sum) && std::isnan(column)
                                : sum == odd && column == odd);
  }
}

// A row in many tiles, whatever else the program holds, is summed in the same parts.
TEST(LongSums, DoNotDependOnTiles) {
  const int64_t n = 40'007;
  const auto v = values(n, [](int64_t i) { return std::cos(i * 0.11) + 1e-3 * (i % 7); });
  std::vector<float> sums;
  for (const int threads : {1, 2})
    for (const bool is_fused : {false, true}) {
      Rank rank(threads);
      const auto module = std::make_shared<Module>();
      Builder b(*module, "f");
      const Var x = b.param("x", {DType::kF32, {n}});
      const Var sum = reduce_sum(x, {0}, true);
      b.result("sum", sum);
      if (is_fused) b.result("y", exp(x - sum * 1e-9) + sqrt(abs(x)) * reduce_max(x, {0}, true));
      CompileOptions o;
      o.plan.target = Target::this_cpu(threads);
      const auto c = compile(module, b.finish_into_module().value(), o);
      ASSERT_TRUE(c.ok()) << c.error().message;
      const auto s = Session::create(c->plan, rank).value();
      ASSERT_TRUE(s->bind_input("x", v.data()).ok());
      ASSERT_TRUE(s->run().ok());
      sums.push_back(s->result("sum").as<float>()[0]);
    }
  for (const float s : sums) EXPECT_EQ(s, sums[0]);
}

}  // namespace
}  // namespace tegula
