// Tests what is composed of other ops, against values from NumPy, or plain loops.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tegula/tegula.h"

namespace tegula {
namespace {

using Values = std::vector<double>;

HostTensor tensor(Shape shape, Values v, DType t = DType::kF64) {
  return HostTensor({t, shape}, v);
}
HostTensor range(Shape shape, DType t = DType::kF64) {
  Values v(static_cast<size_t>(shape.numel()));
  std::iota(v.begin(), v.end(), 0.0);
  return tensor(shape, v, t);
}
HostTensor random(Shape shape, uint64_t seed) {
  HostTensor t({DType::kF64, shape});
  for (int64_t i = 0; i < t.numel(); ++i)
    t.put(i, 2 * philox_uniform(seed, 1, static_cast<uint64_t>(i)) - 1);
  return t;
}

// fn's results on these operands; fn: (Builder&, std::vector<Var>) -> std::vector<Var>.
template <class F>
Result<std::vector<HostTensor>> evaluate(const std::vector<HostTensor>& in, F&& fn) {
  Module m;
  Builder b(m, "f");
  std::vector<Var> x;
  for (const HostTensor& t : in) x.push_back(b.param(cat("x", x.size()), t.type));
  for (const Var& y : fn(b, x)) b.result("", y);
  const FuncId f = TEGULA_TRY(b.finish_into_module());
  return interpret(m, m[f], in);
}
template <class F>
std::vector<HostTensor> values(const std::vector<HostTensor>& in, F&& fn) {
  auto out = evaluate(in, fn);
  EXPECT_TRUE(out.ok()) << out.error().to_string();
  return out.ok() ? *std::move(out) : std::vector<HostTensor>(8, tensor({}, {NAN}));
}
template <class F>
HostTensor value(const std::vector<HostTensor>& in, F&& fn) {
  return values(in, [&](Builder& b, std::vector<Var> x) { return std::vector{fn(b, x)}; })[0];
}
// The first result's only error.
template <class F>
std::string error(const std::vector<HostTensor>& in, F&& fn) {
  const auto out =
      evaluate(in, [&](Builder& b, std::vector<Var> x) { return std::vector{fn(b, x)}; });
  return out.ok() ? "no error" : out.error().message;
}
#define FN [&](Builder & b [[maybe_unused]], std::vector<Var> x)

void near(const HostTensor& got, const Values& want, double slack = 1e-14) {
  ASSERT_EQ(got.numel(), static_cast<int64_t>(want.size())) << got.type.shape.rank();
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(got.at(static_cast<int64_t>(i)), want[i], slack) << "element " << i;
}
void equal(const HostTensor& got, const Values& want) { EXPECT_EQ(got.values(), want); }

TEST(Arrange, MovesElements) {
  const auto x = range({2, 3});
  equal(value(
            {x}, FN { return roll(x[0], 1, 1); }),
        {2, 0, 1, 5, 3, 4});
  equal(value(
            {x}, FN { return roll(x[0], -1, -2); }),
        {3, 4, 5, 0, 1, 2});
  equal(value(
            {x}, FN { return roll(x[0], 7, 1); }),
        {2, 0, 1, 5, 3, 4});
  equal(value(
            {x},
            FN {
              return flip(x[0], {0, -1});
            }),
        {5, 4, 3, 2, 1, 0});
  equal(value(
            {x},
            FN {
              return repeat(slice(x[0], 1, 0, 2), {2, 2});
            }),
        {0, 1, 0, 1, 3, 4, 3, 4, 0, 1, 0, 1, 3, 4, 3, 4});
  EXPECT_EQ(value(
                {x},
                FN {
                  return repeat(x[0], {2, 1, 2});
                })
                .type.shape,
            Shape({2, 2, 6}));
  const auto both = value(
      {x}, FN {
        return stack(std::vector{x[0], x[0] * 10.0}, 1);
      });
  EXPECT_EQ(both.type.shape, Shape({2, 2, 3}));
  equal(both, {0, 1, 2, 0, 10, 20, 3, 4, 5, 30, 40, 50});
  const auto parts = values(
      {x}, FN {
        return split(x[0], std::vector<int64_t>{1, 2}, 1);
      });
  equal(parts[0], {0, 3}), equal(parts[1], {1, 2, 4, 5});
  const auto halves = values(
      {x}, FN { return split(x[0], 2, 0); });
  equal(halves[0], {0, 1, 2}), equal(halves[1], {3, 4, 5});
}

TEST(Arrange, Triangles) {
  const auto m = range({3, 4});
  equal(value(
            {m}, FN { return tril(x[0]); }),
        {0, 0, 0, 0, 4, 5, 0, 0, 8, 9, 10, 0});
  equal(value(
            {m}, FN { return tril(x[0], -1); }),
        {0, 0, 0, 0, 4, 0, 0, 0, 8, 9, 0, 0});
  equal(value(
            {m}, FN { return triu(x[0], 1); }),
        {0, 1, 2, 3, 0, 0, 6, 7, 0, 0, 0, 11});
}

TEST(Arrange, Pads) {
  const auto v = range({4});
  equal(value(
            {v}, FN { return pad(x[0], 0, 2, 3, PadMode::kReflect); }),
        {2, 1, 0, 1, 2, 3, 2, 1, 0});
  equal(value(
            {v}, FN { return pad(x[0], 0, 2, 3, PadMode::kEdge); }),
        {0, 0, 0, 1, 2, 3, 3, 3, 3});
  equal(value(
            {v}, FN { return pad(x[0], 0, 5, 9, PadMode::kWrap); }),
        {3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0});
  EXPECT_NE(error(
                {v}, FN { return pad(x[0], 0, 4, 0, PadMode::kReflect); })
                .find("lo 4"),
            std::string::npos);
}

TEST(Arrange, GradientsAddUp) {
  // Each element's gradient is how often it is there.
  const auto g = value(
      {range({4})}, FN {
        const Var y = reduce_sum(pad(x[0], 0, 2, 3, PadMode::kReflect), {0});
        return grad(y, std::span(x))[0];
      });
  equal(g, {2, 3, 3, 1});
}

TEST(Arrange, Errors) {
  const auto m = range({3, 4});
  EXPECT_EQ(error(
                {m}, FN { return roll(x[0], 1, 2); }),
            "roll: dim 2 of f64[3,4]");
  EXPECT_NE(error(
                {m},
                FN {
                  return split(x[0], std::vector<int64_t>{1, 2}, 1)[0];
                })
                .find("do not add up"),
            std::string::npos);
  EXPECT_NE(error(
                {m}, FN { return split(x[0], 3, 1)[0]; })
                .find("3 equal parts"),
            std::string::npos);
  EXPECT_NE(error(
                {m}, FN { return repeat(x[0], {2}); })
                .find("1 counts"),
            std::string::npos);
}

TEST(Reshape, OneSizeIsWhatIsLeft) {
  const auto m = range({3, 4});
  EXPECT_EQ(value(
                {m},
                FN {
                  return reshape(x[0], {2, -1});
                })
                .type.shape,
            Shape({2, 6}));
  EXPECT_EQ(value(
                {m}, FN { return reshape(x[0], {-1}); })
                .type.shape,
            Shape({12}));
  EXPECT_NE(error(
                {m},
                FN {
                  return reshape(x[0], {5, -1});
                })
                .find("no size that fits"),
            std::string::npos);
  EXPECT_NE(error(
                {m},
                FN {
                  return reshape(x[0], {-1, -1});
                })
                .find("one may be"),
            std::string::npos);
  // A symbolic dim on one side: [s, 6] -> [-1, 2] is [3 s, 2].
  Module module;
  Builder b(module, "f");
  const Dim s = module.add_symbol("s", 5);
  const Var y = reshape(b.param("x", {DType::kF32, {s, 6}}), {-1, 2});
  EXPECT_EQ(y.dim(0).bound(), 15);
  const Var z = reshape(b.param("y", {DType::kF32, {s, 6}}), {s, -1, 2});
  EXPECT_EQ(z.dim(1), Dim(3));
}

TEST(Statistics, VarianceAndDeviation) {
  const auto m = range({3, 4});
  near(value(
           {m}, FN { return reduce_var(x[0], {1}); }),
       {5. / 3, 5. / 3, 5. / 3});
  near(value(
           {m},
           FN {
             return reduce_std(x[0], {0, -1}, 0);
           }),
       {3.452052529534663});
  EXPECT_TRUE(std::isnan(value(
                             {m}, FN { return reduce_var(slice(x[0], 1, 0, 1), {1}); })
                             .at(0)));
}

TEST(Statistics, ExtremaOverAnyDim) {
  const auto m = tensor({2, 3}, {3, 1, 3, 0, 1, 5});
  equal(value(
            {m}, FN { return argmax(x[0]); }),
        {0, 2});
  equal(value(
            {m}, FN { return argmax(x[0], 0); }),
        {0, 0, 1});
  equal(value(
            {m}, FN { return argmin(x[0], 0); }),
        {1, 0, 0});
  EXPECT_EQ(value(
                {m}, FN { return argmin(x[0], 1, true); })
                .type.shape,
            Shape({2, 1}));
  EXPECT_EQ(error(
                {m}, FN { return argmin(x[0], 2); }),
            "argmin: dim 2 of a value of 2 dims");
}

TEST(Scalars, AreRowsOfOne) {
  const auto s = tensor({}, {-2.5});
  const auto out = values(
      {s}, FN {
        const Ranked r = sort(x[0]);
        return std::vector{softmax(x[0]),     log_softmax(x[0]),
                           logsumexp(x[0]),   argmax(x[0]),
                           argmin(x[0]),      r.values,
                           r.indices,         cumsum(x[0], 0),
                           cumprod(x[0], -1), cummax(x[0], 0).values};
      });
  const Values want = {1, 0, -2.5, 0, 0, -2.5, 0, -2.5, -2.5, -2.5};
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(out[i].type.shape, Shape({})) << i;
    EXPECT_EQ(out[i].at(0), want[i]) << i;
  }
}

TEST(Cumulative, ProductsAndTheirGradients) {
  const auto v = tensor({5}, {1, 2, 0, 3, 4});
  equal(value(
            {v}, FN { return cumprod(x[0], 0); }),
        {1, 2, 0, 0, 0});
  equal(value(
            {v}, FN { return cumprod(x[0], 0, true); }),
        {0, 0, 0, 12, 4});
  // d Σ y / d x by hand: the sums of what each element multiplies.
  equal(value(
            {v}, FN { return grad(reduce_sum(cumprod(x[0], 0), {0}), std::span(x))[0]; }),
        {3, 1, 2 + 2 * 3 + 2 * 3 * 4, 0, 0});
  equal(value(
            {v}, FN { return grad(reduce_prod(x[0], {0}), std::span(x))[0]; }),
        {0, 0, 24, 0, 0});
  equal(value(
            {tensor({2, 2}, {100, 50, 7, 3}, DType::kI8)},
            FN {
              return reduce_prod(x[0], {0, 1});
            }),
        {105000});
}

TEST(Indexing, AlongADim) {
  const auto m = range({3, 4});
  const auto ids = tensor({1, 4}, {2, 0, 1, 1}, DType::kI32);
  equal(value(
            {m, ids}, FN { return take_along(x[0], x[1], 0); }),
        {8, 1, 6, 7});
  const auto put = value(
      {m, ids, tensor({1, 4}, {-1, -2, -3, -4})},
      FN { return put_along(x[0], x[1], x[2], 0, ScatterMode::kSet); });
  equal(put, {0, -2, 2, 3, 4, 5, -3, -4, -1, 9, 10, 11});
}

TEST(Indexing, OfSeveralDims) {
  const auto x3 = range({2, 3, 2});
  const auto ids = tensor({4, 2}, {1, 2, 0, 0, 1, 2, 2, 0}, DType::kI64);  // the last is outside
  equal(value(
            {x3, ids}, FN { return gather_nd(x[0], x[1]); }),
        {10, 11, 0, 1, 10, 11, 0, 0});
  const auto updates = tensor({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  equal(value(
            {x3, ids, updates}, FN { return scatter_nd(x[0], x[1], x[2], ScatterMode::kAdd); }),
        {3, 5, 2, 3, 4, 5, 6, 7, 8, 9, 16, 19});
  equal(value(
            {x3, ids, updates}, FN { return scatter_nd(x[0], x[1], x[2], ScatterMode::kSet); }),
        {3, 4, 2, 3, 4, 5, 6, 7, 8, 9, 5, 6});
  EXPECT_NE(error(
                {x3, tensor({2, 4}, Values(8), DType::kI32)}, FN { return gather_nd(x[0], x[1]); })
                .find("must be 1 to 3"),
            std::string::npos);
}

TEST(Indexing, Searches) {
  const auto s = tensor({5}, {1, 3, 3, 5, 7}), v = tensor({2, 3}, {0, 3, 9, 4, 7, 1});
  equal(value(
            {s, v}, FN { return searchsorted(x[0], x[1]); }),
        {0, 1, 5, 3, 4, 0});
  equal(value(
            {s, v}, FN { return searchsorted(x[0], x[1], true); }),
        {0, 3, 5, 3, 5, 1});
}

TEST(Elementwise, Sugar) {
  const auto v = tensor({4}, {-6, -1, 0, 2});
  Values want;
  for (double e : v.values()) want.push_back(0.5 * e * std::erfc(-e / std::sqrt(2.0)));
  near(value(
           {v}, FN { return gelu_erf(x[0]); }),
       want, 1e-16);
  equal(value(
            {tensor({3}, {0, -1, 5}, DType::kI32)}, FN { return bitwise_not(x[0]); }),
        {-1, 0, -6});
  equal(value(
            {tensor({2}, {0, 200}, DType::kU8)}, FN { return bitwise_not(x[0]); }),
        {255, 55});
  equal(value(
            {tensor({2}, {0, 1}, DType::kBool)}, FN { return bitwise_not(x[0]); }),
        {1, 0});
  EXPECT_NE(error(
                {v}, FN { return bitwise_and(x[0], x[0]); })
                .find("expected an integer or bool"),
            std::string::npos);
}

TEST(Norms, OfGroups) {
  const auto in = random({2, 4, 3}, 1), w = random({4}, 2), bias = random({4}, 3);
  const auto y = value(
      {in, w, bias}, FN { return group_norm(x[0], 2, x[1], x[2], 1e-3); });
  const auto z = value(
      {in}, FN { return instance_norm(x[0], {}, {}, 1e-3); });
  for (int64_t n = 0; n < 2; ++n)
    for (int64_t c = 0; c < 4; ++c) {
      const auto normal = [&](int64_t from, int64_t count, int64_t at) {
        double mean = 0, var = 0;
        for (int64_t i = 0; i < count; ++i) mean += in.at(from + i) / static_cast<double>(count);
        for (int64_t i = 0; i < count; ++i)
          var += std::pow(in.at(from + i) - mean, 2) / static_cast<double>(count);
        return (in.at(at) - mean) / std::sqrt(var + 1e-3);
      };
      for (int64_t s = 0; s < 3; ++s) {
        const int64_t at = (n * 4 + c) * 3 + s;
        EXPECT_NEAR(y.at(at), normal(n * 12 + c / 2 * 6, 6, at) * w.at(c) + bias.at(c), 1e-13);
        EXPECT_NEAR(z.at(at), normal((n * 4 + c) * 3, 3, at), 1e-13);
      }
    }
  EXPECT_NE(error(
                {in}, FN { return group_norm(x[0], 3); })
                .find("3 groups of the 4"),
            std::string::npos);
}

TEST(Losses, OfLogits) {
  const auto logits = random({4, 5}, 4);
  const auto targets = tensor({4}, {3, -100, 0, 9}, DType::kI64);  // two count
  const auto loss = [&](int64_t n, int64_t t, double smoothing) {
    double sum = 0, mean = 0;
    for (int64_t k = 0; k < 5; ++k)
      sum += std::exp(logits.at(n * 5 + k)), mean += logits.at(n * 5 + k) / 5;
    return std::log(sum) - (1 - smoothing) * logits.at(n * 5 + t) - smoothing * mean;
  };
  near(value(
           {logits, targets}, FN { return logits_cross_entropy_loss(x[0], x[1]); }),
       {(loss(0, 3, 0) + loss(2, 0, 0)) / 2});
  near(value(
           {logits, targets},
           FN { return logits_cross_entropy_loss(x[0], x[1], {.label_smoothing = 0.1}); }),
       {(loss(0, 3, 0.1) + loss(2, 0, 0.1)) / 2});
  EXPECT_NE(error(
                {logits, logits}, FN { return logits_cross_entropy(x[0], x[1]).sum; })
                .find("without their last dim"),
            std::string::npos);
}

TEST(Embedding, PaddingRow) {
  const auto table = random({4, 2}, 5);
  const auto ids = tensor({3}, {2, 1, 2}, DType::kI32);
  const auto out = values(
      {table, ids}, FN {
        const Var y = embedding(x[0], x[1], 1);
        return std::vector{y, grad(reduce_sum(y, {0, 1}), std::span(x).first(1))[0]};
      });
  equal(out[0], {table.at(4), table.at(5), 0, 0, table.at(4), table.at(5)});
  equal(out[1], {0, 0, 0, 0, 2, 2, 0, 0});
}

// Against plain loops, and the adjoint of conv: <conv(x), y> = <x, conv_transpose(y)>.
TEST(Conv, Transposed) {
  ConvTransposeOptions o;
  o.stride = {2}, o.lo = {1}, o.hi = {0}, o.dilation = {2}, o.groups = 2, o.extra = {1};
  const auto y = random({2, 4, 3}, 6), w = random({4, 3, 2}, 7);
  const auto out = value(
      {y, w}, FN { return conv_transpose(x[0], x[1], o); });
  // (3 - 1)·2 - 1 - 0 + 2·1 + 1 + 1 = 7
  ASSERT_EQ(out.type.shape, Shape({2, 6, 7}));
  Values want(static_cast<size_t>(out.numel()));
  for (int64_t n = 0; n < 2; ++n)
    for (int64_t d = 0; d < 4; ++d)
      for (int64_t c = 0; c < 3; ++c)
        for (int64_t i = 0; i < 3; ++i)
          for (int64_t k = 0; k < 2; ++k) {
            const int64_t at = 2 * i + 2 * k - 1;
            if (at < 0 || at >= 7) continue;
            want[static_cast<size_t>((n * 6 + d / 2 * 3 + c) * 7 + at)] +=
                y.at((n * 4 + d) * 3 + i) * w.at((d * 3 + c) * 2 + k);
          }
  near(out, want);
  o.extra = {2};
  EXPECT_NE(error(
                {y, w}, FN { return conv_transpose(x[0], x[1], o); })
                .find("less than the stride 2"),
            std::string::npos);
}

TEST(Pools, OverTheEnd) {
  const auto v = tensor({1, 1, 6}, {5, 1, 2, 7, 3, 4});
  WindowOptions o;
  o.stride = {4};
  // Windows begin at 0 and 4; the second reaches over the end.
  equal(value(
            {v}, FN { return max_pool(x[0], {3}, o); }),
        {5});
  equal(value(
            {v}, FN { return max_pool(x[0], {3}, o, {.ceil_mode = true}); }),
        {5, 4});
  near(value(
           {v}, FN { return avg_pool(x[0], {3}, o, {.ceil_mode = true}); }),
       {8. / 3, 3.5});
  // torch: none begins beyond x and its left padding.
  o.stride = {3}, o.hi = {1};
  EXPECT_EQ(value(
                {v}, FN { return max_pool(x[0], {2}, o, {.ceil_mode = true}); })
                .numel(),
            2);
}

TEST(Pools, PaddingThatCounts) {
  const auto v = tensor({1, 1, 4}, {1, 2, 3, 4});
  WindowOptions o;
  o.lo = {1}, o.hi = {1}, o.stride = {2};
  near(value(
           {v}, FN { return avg_pool(x[0], {3}, o); }),
       {1, 3});
  near(value(
           {v}, FN { return avg_pool(x[0], {3}, o, {.count_include_pad = false}); }),
       {1.5, 3});
  // With both: the window from 3 on has one element of x, one of padding, one that is neither.
  near(value(
           {v}, FN { return avg_pool(x[0], {3}, o, {.ceil_mode = true}); }),
       {1, 3, 2});
}

TEST(Pools, Adaptive) {
  const auto v = random({1, 2, 5, 7}, 8);
  for (const auto& [h, w] : {std::pair<int64_t, int64_t>{2, 3}, {5, 7}, {1, 1}, {7, 4}}) {
    const auto most = value(
        {v}, FN {
          return adaptive_max_pool(x[0], {h, w});
        });
    const auto mean = value(
        {v}, FN {
          return adaptive_avg_pool(x[0], {h, w});
        });
    ASSERT_EQ(most.type.shape, Shape({1, 2, h, w}));
    for (int64_t c = 0; c < 2; ++c)
      for (int64_t i = 0; i < h; ++i)
        for (int64_t j = 0; j < w; ++j) {
          double top = -HUGE_VAL, sum = 0, n = 0;
          for (int64_t p = i * 5 / h; p < ((i + 1) * 5 + h - 1) / h; ++p)
            for (int64_t q = j * 7 / w; q < ((j + 1) * 7 + w - 1) / w; ++q, ++n) {
              const double e = v.at((c * 5 + p) * 7 + q);
              top = std::max(top, e), sum += e;
            }
          EXPECT_EQ(most.at((c * h + i) * w + j), top);
          EXPECT_NEAR(mean.at((c * h + i) * w + j), sum / n, 1e-14);
        }
  }
}

TEST(Attention, CausalAtTheTopLeft) {
  for (const auto& [sq, sk] : {std::pair<int64_t, int64_t>{4, 4}, {3, 5}, {5, 3}}) {
    const auto q = random({1, sq, 2, 3}, 9), k = random({1, sk, 2, 3}, 10),
               v = random({1, sk, 2, 2}, 11);
    const auto o = value(
        {q, k, v}, FN { return attention(x[0], x[1], x[2], {.is_causal_top_left = true}).o; });
    for (int64_t i = 0; i < sq; ++i)
      for (int64_t h = 0; h < 2; ++h)
        for (int64_t e = 0; e < 2; ++e) {
          double sum = 0, total = 0;
          for (int64_t j = 0; j <= std::min(i, sk - 1); ++j) {
            double score = 0;
            for (int64_t d = 0; d < 3; ++d)
              score += q.at((i * 2 + h) * 3 + d) * k.at((j * 2 + h) * 3 + d);
            const double weight = std::exp(score / std::sqrt(3.0));
            sum += weight, total += weight * v.at((j * 2 + h) * 2 + e);
          }
          EXPECT_NEAR(o.at((i * 2 + h) * 2 + e), total / sum, 1e-13) << sq << " " << sk;
        }
  }
}

}  // namespace
}  // namespace tegula
