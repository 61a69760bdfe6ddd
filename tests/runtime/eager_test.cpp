// Eager and compiled, fused or not: identical bits.
#include "tegula/runtime/eager.h"

#include <gtest/gtest.h>

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
  ThreadPool pool(2);
  Eager e(pool);
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
    options.plan.n_threads = pool.n_threads();
    options.passes.passes = passes;
    auto f = b.finish_into_module();
    ASSERT_TRUE(f.ok()) << f.error().to_string();
    auto compiled = compile(module, *f, options);
    ASSERT_TRUE(compiled.ok()) << compiled.error().to_string();
    auto session = Session::create(compiled->plan, &pool);
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

TEST(Eager, CarriesItsErrorToTheFirstRead) {
  ThreadPool pool(1);
  Eager e(pool);
  const float data[6] = {};
  const Var a = e.tensor({DType::kF32, {2, 3}}, data), b = e.tensor({DType::kF32, {3, 2}}, data);
  const Var c = exp(a + b);
  auto r = e.read(c);
  ASSERT_FALSE(r.ok());
  EXPECT_NE(r.error().message.find("do not broadcast"), std::string::npos);
  EXPECT_NE(std::string(r.error().where.file_name()).find("math.h"), std::string::npos);
}

}  // namespace
}  // namespace tegula
