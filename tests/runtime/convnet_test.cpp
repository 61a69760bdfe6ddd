// A convolutional network with batch norm and pooling goes through autodiff, passes, plan and
// kernels: it learns to tell pictures apart, and costs what the plan says.
#include <gtest/gtest.h>

#include "tegula/base/philox.h"
#include "tegula/ops/autodiff.h"
#include "tegula/ops/conv.h"
#include "tegula/ops/layers.h"
#include "tegula/ops/linear_cross_entropy.h"
#include "tegula/runtime/compile.h"
#include "tegula/runtime/session.h"

namespace tegula {
namespace {

constexpr int kBatch = 16, kSide = 12, kClasses = 3;

struct Net {
  Builder& b;
  std::vector<Var> weights;
  std::vector<std::string> names, state;

  Var weight(const std::string& name, const Shape& shape) {
    names.push_back(name);
    weights.push_back(b.weight(name, {DType::kF32, shape}));
    return weights.back();
  }
  // conv, batch norm, relu, halved by pooling.
  Var stage(Var x, int64_t channels, const std::string& name) {
    const Shape c = {channels};
    x = conv(x, weight(name + ".w", {channels, x.dim(1), 3, 3}), {{.lo = {1, 1}, .hi = {1, 1}}});
    const Var scale = weight(name + ".scale", c), shift = weight(name + ".shift", c);
    const Var mean = b.param(name + ".mean", {DType::kF32, c}, Role::kState);
    const Var var = b.param(name + ".var", {DType::kF32, c}, Role::kState);
    const BatchNorm n = batch_norm_training(x, scale, shift, mean, var);
    b.result(name + ".mean", n.running_mean), b.donate(name + ".mean", name + ".mean");
    b.result(name + ".var", n.running_var), b.donate(name + ".var", name + ".var");
    return max_pool(relu(n.y), {2, 2}, {.stride = {2, 2}});
  }
};

// A bright bar in noise: its direction is the class.
void draw(float* x, int32_t label, uint64_t seed) {
  for (int i = 0; i < kSide * kSide; ++i)
    x[i] = static_cast<float>(philox_uniform(seed, 1, static_cast<uint64_t>(i))) * 0.5f;
  const auto at = static_cast<int>(philox_uniform(seed, 2, 0) * (kSide - 1));
  for (int i = 0; i < kSide; ++i) {
    const int row = label == 0 ? at : i, column = label == 1 ? at : i;
    x[row * kSide + column] += 1;
  }
}

TEST(ConvNet, LearnsAndCostsWhatThePlanSays) {
  auto module = std::make_shared<Module>();
  Builder b(*module, "step");
  Net net{b, {}, {}, {}};
  const Var x = b.param("x", {DType::kF32, {kBatch, 1, kSide, kSide}});
  const Var y = b.param("y", {DType::kI32, {kBatch}});
  Var h = net.stage(net.stage(x, 8, "a"), 12, "b");
  h = reshape(h, {kBatch, 12 * (kSide / 4) * (kSide / 4)});
  const Var loss = cross_entropy_loss(h, net.weight("head", {kClasses, h.dim(1)}), y);
  const auto g = grad(loss, net.weights);
  b.result("loss", loss);
  for (size_t i = 0; i < g.size(); ++i) {
    b.result(net.names[i], net.weights[i] - g[i] * 0.1);
    b.donate(net.names[i], net.names[i]);
  }
  const auto f = b.finish_into_module();
  ASSERT_TRUE(f.ok()) << f.error().to_string();
  CompileOptions options;
  options.plan.target.n_threads = 2;
  auto compiled = compile(module, *f, options);
  ASSERT_TRUE(compiled.ok()) << compiled.error().to_string();

  Rank rank(2);
  Store store(rank);
  auto session = Session::create(compiled->plan, rank);
  ASSERT_TRUE(session.ok());
  Session& s = **session;
  std::vector<float> xs(kBatch * kSide * kSide);
  std::vector<int32_t> ys(kBatch);
  ASSERT_TRUE(s.bind("x", xs.data()).ok() && s.bind("y", ys.data()).ok());
  ASSERT_TRUE(s.bind_store(store).ok());
  uint64_t at = 0;
  for (const std::string& name : net.names) {
    const TensorRef t = store.find(name);
    const bool is_scale = name.ends_with("scale");
    for (int64_t i = 0; i < t.numel(); ++i)
      t.as<float>()[i] = is_scale ? 1 : philox_uniform(1, 0, at++) * 0.4f - 0.2f;
  }
  float first = 0, last = 0;
  for (uint64_t step = 0; step < 60; ++step) {
    for (size_t i = 0; i < kBatch; ++i) {
      ys[i] = static_cast<int32_t>((step + i) % kClasses);
      draw(xs.data() + i * kSide * kSide, ys[i], step * kBatch + i);
    }
    const int64_t before = s.counters().math_flops;
    ASSERT_TRUE(s.run().ok());
    EXPECT_EQ(s.counters().math_flops - before, compiled->plan->flops());
    last = s.result("loss").as<float>()[0];
    if (step == 0) first = last;
  }
  EXPECT_GT(first, 0.9f);
  EXPECT_LT(last, 0.2f);
  for (const Step& step : compiled->plan->steps)  // nothing is left to slow references
    EXPECT_TRUE(step.kernel != nullptr) << step.op->name;
}

}  // namespace
}  // namespace tegula
