// Layers against plain C++ loops: batch norm, dropout, LSTM, GRU, int8.
#include "tegula/ops/layers.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tegula/base/philox.h"
#include "tegula/ir/interpret.h"
#include "tegula/ops/autodiff.h"
#include "tegula/ops/quantise.h"

namespace tegula {
namespace {

HostTensor random_tensor(const Type& type, uint64_t seed) {
  HostTensor t(type);
  for (int64_t i = 0; i < t.numel(); ++i)
    t.put(i, 2 * philox_uniform(seed, 1, static_cast<uint64_t>(i)) - 1);
  return t;
}

std::vector<HostTensor> run(Module& m, Builder& b, std::span<const HostTensor> in) {
  auto f = b.finish_into_module();
  EXPECT_TRUE(f.ok()) << f.error().to_string();
  if (!f.ok()) return {};
  auto out = interpret(m, m[*f], in);
  EXPECT_TRUE(out.ok()) << out.error().to_string();
  return out.ok() ? *std::move(out) : std::vector<HostTensor>();
}

TEST(BatchNorm, TrainingAndInference) {
  const Type xt = {DType::kF64, {4, 3, 2}}, ct = {DType::kF64, {3}};
  Module m;
  Builder b(m, "f");
  std::vector<Var> p = {b.param("x", xt)};
  for (const char* name : {"w", "b", "mean", "var"}) p.push_back(b.param(name, ct));
  const auto y = batch_norm_training(p[0], p[1], p[2], p[3], p[4], 0.1, 1e-3);
  b.result("y", y.y), b.result("mean", y.running_mean), b.result("var", y.running_var);
  b.result("z", batch_norm_inference(p[0], p[1], p[2], p[3], abs(p[4]), 1e-3));
  std::vector<HostTensor> in;
  for (const Var& v : p) in.push_back(random_tensor(v.type(), in.size()));
  const auto out = run(m, b, in);
  ASSERT_EQ(out.size(), 4u);
  for (int64_t c = 0; c < 3; ++c) {
    auto at = [&](int64_t n, int64_t s) { return (n * 3 + c) * 2 + s; };
    double mean = 0, var = 0;
    for (int64_t n = 0; n < 4; ++n)
      for (int64_t s = 0; s < 2; ++s) mean += in[0].at(at(n, s)) / 8;
    for (int64_t n = 0; n < 4; ++n)
      for (int64_t s = 0; s < 2; ++s) var += std::pow(in[0].at(at(n, s)) - mean, 2) / 8;
    EXPECT_NEAR(out[1].at(c), 0.9 * in[3].at(c) + 0.1 * mean, 1e-14);
    EXPECT_NEAR(out[2].at(c), 0.9 * in[4].at(c) + 0.1 * var * 8 / 7, 1e-14);
    for (int64_t n = 0; n < 4; ++n)
      for (int64_t s = 0; s < 2; ++s) {
        const double x = in[0].at(at(n, s)), w = in[1].at(c), bias = in[2].at(c);
        EXPECT_NEAR(out[0].at(at(n, s)), (x - mean) / std::sqrt(var + 1e-3) * w + bias, 1e-13);
        const double fixed = std::sqrt(std::abs(in[4].at(c)) + 1e-3);
        EXPECT_NEAR(out[3].at(at(n, s)), (x - in[3].at(c)) / fixed * w + bias, 1e-13);
      }
  }
}

TEST(Dropout, DropsAboutItsShareAndKeepsTheMean) {
  const Type t = {DType::kF64, {64, 64}};
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", t), seed = b.param("seed", {DType::kI64, {}});
  const Var y = dropout(x, seed, 7, 0.25);
  b.result("y", y), b.result("again", dropout(x, seed, 7, 0.25));
  b.result("other", dropout(x, seed, 8, 0.25));
  b.result("g", grad(reduce_sum(y, {0, 1}), std::span(&x, 1))[0]);
  const HostTensor in[] = {HostTensor(t, std::vector<double>(4096, 3.0)),
                           HostTensor({DType::kI64, {}}, std::vector{5.0})};
  const auto out = run(m, b, in);
  ASSERT_EQ(out.size(), 4u);
  int64_t dropped = 0, differ = 0;
  for (int64_t i = 0; i < 4096; ++i) {
    const double v = out[0].at(i);
    EXPECT_TRUE(v == 0 || v == 3 * (1 / 0.75)) << v;
    EXPECT_EQ(out[3].at(i), v / 3);
    dropped += v == 0, differ += v != out[2].at(i);
  }
  EXPECT_EQ(out[0].bytes, out[1].bytes);
  // Five standard deviations of a binomial around 1024; two masks differ at 2 · 1/4 · 3/4.
  EXPECT_NEAR(static_cast<double>(dropped), 1024, 5 * std::sqrt(4096 * 0.25 * 0.75));
  EXPECT_NEAR(static_cast<double>(differ), 1536, 5 * std::sqrt(4096 * 0.375 * 0.625));
}

double sigma(double x) { return 1 / (1 + std::exp(-x)); }

// in: x [b, s, d], then the weights.
struct Cell {
  int64_t batch = 2, steps = 4, d = 3, h = 2;
  std::vector<HostTensor> in;
  // Row j of x_t w + bias and of h w.
  double from(const HostTensor& w, std::span<const double> v, int64_t column, int64_t n) const {
    double sum = 0;
    for (size_t k = 0; k < v.size(); ++k) sum += v[k] * w.at(static_cast<int64_t>(k) * n + column);
    return sum;
  }
  std::vector<double> x(int64_t b, int64_t t) const {
    std::vector<double> v;
    for (int64_t k = 0; k < d; ++k) v.push_back(in[0].at((b * steps + t) * d + k));
    return v;
  }
};

TEST(Lstm, AgainstALoop) {
  Cell cell;
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", {DType::kF64, {2, 4, 3}}), wx = b.param("wx", {DType::kF64, {3, 8}}),
            wh = b.param("wh", {DType::kF64, {2, 8}}), bias = b.param("b", {DType::kF64, {8}});
  const auto r = lstm(x, {wx, wh, bias});
  b.result("y", r.y), b.result("h", r.h), b.result("c", r.c);
  for (const Var& v : {x, wx, wh, bias}) cell.in.push_back(random_tensor(v.type(), cell.in.size()));
  const auto out = run(m, b, cell.in);
  ASSERT_EQ(out.size(), 3u);
  for (int64_t n = 0; n < 2; ++n) {
    std::vector<double> h(2, 0), c(2, 0);
    for (int64_t t = 0; t < 4; ++t) {
      std::vector<double> gate(8);
      for (int64_t j = 0; j < 8; ++j)
        gate[static_cast<size_t>(j)] = cell.from(cell.in[1], cell.x(n, t), j, 8) +
                                       cell.in[3].at(j) + cell.from(cell.in[2], h, j, 8);
      for (size_t k = 0; k < 2; ++k) {
        c[k] = sigma(gate[2 + k]) * c[k] + sigma(gate[k]) * std::tanh(gate[4 + k]);
        h[k] = sigma(gate[6 + k]) * std::tanh(c[k]);
        EXPECT_NEAR(out[0].at((n * 4 + t) * 2 + static_cast<int64_t>(k)), h[k], 1e-14);
      }
    }
    for (size_t k = 0; k < 2; ++k) {
      EXPECT_NEAR(out[1].at(n * 2 + static_cast<int64_t>(k)), h[k], 1e-14);
      EXPECT_NEAR(out[2].at(n * 2 + static_cast<int64_t>(k)), c[k], 1e-14);
    }
  }
}

TEST(Gru, AgainstALoop) {
  Cell cell;
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", {DType::kF64, {2, 4, 3}}), wx = b.param("wx", {DType::kF64, {3, 6}}),
            wh = b.param("wh", {DType::kF64, {2, 6}}), bx = b.param("bx", {DType::kF64, {6}}),
            bh = b.param("bh", {DType::kF64, {6}});
  const auto r = gru(x, {wx, wh, bx, bh});
  b.result("y", r.y), b.result("h", r.h);
  for (const Var& v : {x, wx, wh, bx, bh})
    cell.in.push_back(random_tensor(v.type(), cell.in.size()));
  const auto out = run(m, b, cell.in);
  ASSERT_EQ(out.size(), 2u);
  for (int64_t n = 0; n < 2; ++n) {
    std::vector<double> h(2, 0);
    for (int64_t t = 0; t < 4; ++t) {
      std::vector<double> next(2);
      auto gx = [&](size_t j) {
        const auto k = static_cast<int64_t>(j);
        return cell.from(cell.in[1], cell.x(n, t), k, 6) + cell.in[3].at(k);
      };
      auto gh = [&](size_t j) {
        const auto k = static_cast<int64_t>(j);
        return cell.from(cell.in[2], h, k, 6) + cell.in[4].at(k);
      };
      for (size_t k = 0; k < 2; ++k) {
        const double reset = sigma(gx(k) + gh(k)), z = sigma(gx(2 + k) + gh(2 + k));
        next[k] = (1 - z) * std::tanh(gx(4 + k) + reset * gh(4 + k)) + z * h[k];
        EXPECT_NEAR(out[0].at((n * 4 + t) * 2 + static_cast<int64_t>(k)), next[k], 1e-14);
      }
      h = next;
    }
  }
}

TEST(Lstm, ErrorsNameTheLayer) {
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", {DType::kF32, {4, 3}}), w = b.param("w", {DType::kF32, {3, 8}});
  b.result("y", lstm(x, {w, w, w}).y);
  auto f = b.finish_into_module();
  ASSERT_FALSE(f.ok());
  EXPECT_NE(f.error().message.find("lstm: x is f32[4,3]"), std::string::npos) << f.error().message;
}

TEST(Quantise, RoundTripIsWithinHalfAStep) {
  const Type t = {DType::kF32, {5, 40}};
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", t);
  const auto q = quantise(x, 0);
  b.result("scale", q.scale), b.result("x", dequantise(q.q, q.scale, 0));
  const HostTensor in = random_tensor(t, 3);
  const auto out = run(m, b, std::span(&in, 1));
  ASSERT_EQ(out.size(), 2u);
  for (int64_t c = 0; c < 5; ++c) {
    double largest = 0;
    for (int64_t i = 0; i < 40; ++i) largest = std::max(largest, std::abs(in.at(c * 40 + i)));
    EXPECT_FLOAT_EQ(static_cast<float>(out[0].at(c)), static_cast<float>(largest / 127));
    for (int64_t i = 0; i < 40; ++i)
      EXPECT_LE(std::abs(out[1].at(c * 40 + i) - in.at(c * 40 + i)), largest / 127 * 0.5000001);
  }
}

}  // namespace
}  // namespace tegula
