// Eager and compiled, fused or not: identical bits.
#include "tegula/runtime/eager.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tegula/base/philox.h"
#include "tegula/ops/autodiff.h"
#include "tegula/ops/math.h"

namespace tegula {
namespace {

std::vector<float> numbers(int64_t n, uint64_t seed) {
  std::vector<float> v(static_cast<size_t>(n));
  for (size_t i = 0; i < v.size(); ++i) v[i] = philox_uniform(seed, 0, i) * 4 - 2;
  return v;
}

// Written once, run both ways.
std::vector<Var> model(Var x, Var w, Var bias) {
  const Var h = gelu(matmul(x, w) + bias);
  const Var m = reduce_mean(h, {-1}, true);
  const Var y = (h - m) * rsqrt(reduce_mean((h - m) * (h - m), {-1}, true) + 1e-5);
  const Var loss = reduce_sum(exp(y * 0.5) * sigmoid(transpose(transpose(y, 0, 1), 0, 1)), {0, 1});
  const Var xs[] = {x, w, bias};
  auto out = grad(loss, xs);
  out.insert(out.begin(), loss);
  return out;
}

TEST(Eager, HasTheBitsOfTheCompiledFunction) {
  const Type tx{DType::kF32, {7, 33}}, tw{DType::kF32, {33, 29}}, tb{DType::kF32, {29}};
  auto x = numbers(7 * 33, 1), w = numbers(33 * 29, 2), bias = numbers(29, 3);
  Rank rank(2);
  Eager e(rank);
  const auto eager =
      model(e.tensor(tx, x.data()), e.tensor(tw, w.data()), e.tensor(tb, bias.data()));
  ASSERT_FALSE(e.failed()) << e.error().to_string();
  for (const char* passes : {"", "-fuse", "-views", "-views,-fuse,-cse,-algebra,-fold"}) {
    auto module = std::make_shared<Module>();
    Builder b(*module, "f");
    // In this order: a call's arguments may be evaluated in any.
    const Var px = b.param("x", tx), pw = b.param("w", tw), pb = b.param("b", tb);
    const auto out = model(px, pw, pb);
    for (size_t i = 0; i < out.size(); ++i) b.result(cat("y", i), out[i]);
    CompileOptions options;
    options.plan.target.n_threads = rank.pool.n_threads();
    options.passes.passes = passes;
    auto f = b.finish_into_module();
    ASSERT_TRUE(f.ok()) << f.error().to_string();
    auto compiled = compile(module, *f, options);
    ASSERT_TRUE(compiled.ok()) << compiled.error().to_string();
    auto session = Session::create(compiled->plan, rank);
    ASSERT_TRUE(session.ok());
    (*session)->bind(0, x.data());
    (*session)->bind(1, w.data());
    (*session)->bind(2, bias.data());
    ASSERT_TRUE((*session)->run().ok());
    for (size_t i = 0; i < out.size(); ++i) {
      auto want = e.read(eager[i]);
      ASSERT_TRUE(want.ok());
      const TensorRef have = (*session)->result(static_cast<int>(i));
      EXPECT_EQ(0, std::memcmp(want->data, have.data, static_cast<size_t>(want->numel()) * 4))
          << "result " << i << " with passes \"" << passes << "\"";
    }
  }
}

// A loop as a user of another framework writes it: batches come as new tensors, weights are stepped
// and detached, the loss is read.
struct Loop {
  explicit Loop(Eager& eager) : e(eager) {
    const auto start = numbers(8 * 16 + 16 * 4, 7);
    w1 = e.tensor({DType::kF32, {8, 16}}, start.data());
    w2 = e.tensor({DType::kF32, {16, 4}}, start.data() + 128);
  }
  float step(uint64_t i) {
    const auto xs = numbers(5 * 8, 100 + i), ys = numbers(5 * 4, 200 + i);
    const Var x = e.tensor({DType::kF32, {5, 8}}, xs.data());
    const Var y = e.tensor({DType::kF32, {5, 4}}, ys.data());
    const Var error = matmul(tanh(matmul(x, w1)), w2) - y;
    const Var loss = reduce_mean(error * error, {0, 1});
    const auto g = grad(loss, std::vector{w1, w2});
    w1 = e.detach(w1 - g[0] * 0.1), w2 = e.detach(w2 - g[1] * 0.1);
    const auto r = e.read(loss);
    return r.ok() ? r->as<float>()[0] : NAN;
  }
  Eager& e;
  Var w1, w2;
};

TEST(Eager, TrainsAThousandStepsInConstantMemory) {
  Rank rank(1);
  Eager e(rank);
  Loop loop(e);
  int64_t most_bytes = 0, most_values = 0, allocated = 0, regions = 0;
  float loss = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    loss = loop.step(i);
    if (i == 100) allocated = process_memory(0).allocated_bytes, regions = rank.memory.live_bytes();
    most_bytes = std::max(most_bytes, e.held_bytes());
    most_values = std::max(most_values, e.held_values());
  }
  EXPECT_TRUE(std::isfinite(loss));
  // Nothing of a step is left after a few more: the most ever held is what one step needs, some
  // times over.
  EXPECT_LT(most_values, 1000);
  EXPECT_LT(most_bytes, 2 << 20);
  EXPECT_LE(rank.memory.live_bytes(), regions + (1 << 20));
  EXPECT_LE(process_memory(0).allocated_bytes, allocated + (1 << 20));
  EXPECT_LT(e.compiled(), 100);
}

// The same steps with everything kept: the same bits.
TEST(Eager, WhatIsFreedChangesNoBit) {
  Rank rank(1);
  Eager frees(rank), keeps(rank);
  Loop a(frees), b(keeps);
  std::vector<Var> kept;
  for (uint64_t i = 0; i < 40; ++i) {
    EXPECT_EQ(a.step(i), b.step(i)) << i;
    kept.insert(kept.end(), {b.w1, b.w2});
  }
  EXPECT_GT(keeps.held_bytes(), frees.held_bytes());
  const auto wa = frees.read(a.w1), wb = keeps.read(b.w1);
  ASSERT_TRUE(wa.ok() && wb.ok());
  EXPECT_EQ(0, std::memcmp(wa->data, wb->data, 8 * 16 * 4));
}

// A value a gradient may still need lives, though no Var names it; a detached value begins anew.
TEST(Eager, ValuesLiveAsLongAsAGradientMayNeedThem) {
  Rank rank(1);
  Eager e(rank);
  const float two = 2, one = 1;
  const Type scalar{DType::kF32, {}};
  const Var x = e.tensor(scalar, &two);
  Var y = x;
  for (int i = 0; i < 3; ++i) y = y * x;  // x^4
  const Var cut = e.detach(y) * x;
  for (int i = 0; i < 500; ++i) {  // garbage, often enough to be collected
    const Var other = e.tensor(scalar, &one);
    (void)exp(other);
  }
  EXPECT_LT(e.held_values(), 400);
  const auto first = grad(y, std::vector{x});
  const auto second = grad(first[0], std::vector{x});
  const auto value = [&](const Var& v) { return e.read(v)->as<float>()[0]; };
  EXPECT_EQ(value(first[0]), 32);   // 4 x^3
  EXPECT_EQ(value(second[0]), 48);  // 12 x^2
  EXPECT_EQ(value(grad(cut, std::vector{x})[0]), 16);
  EXPECT_EQ(value(cut), 32);
}

TEST(Eager, VarsMayOutliveIt) {
  Var kept, copy;
  {
    Rank rank(1);
    Eager e(rank);
    const float one = 1;
    kept = exp(e.tensor({DType::kF32, {}}, &one));
    copy = kept;
  }
  copy = Var();
  EXPECT_FALSE(kept.valid());  // what it named is gone
}

TEST(Eager, CarriesItsErrorToTheFirstRead) {
  Rank rank(1);
  Eager e(rank);
  const float data[6] = {};
  const Var a = e.tensor({DType::kF32, {2, 3}}, data), b = e.tensor({DType::kF32, {3, 2}}, data);
  const Var c = exp(a + b);
  auto r = e.read(c);
  ASSERT_FALSE(r.ok());
  EXPECT_NE(r.error().message.find("do not broadcast"), std::string::npos);
  EXPECT_NE(std::string(r.error().where.file_name()).find("math.cpp"), std::string::npos);
}

}  // namespace
}  // namespace tegula
