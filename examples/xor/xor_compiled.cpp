// A two-layer perceptron learns exclusive or: built as maths, differentiated, compiled, run.
#include <cstdio>

#include "tegula/tegula.h"

using namespace tegula;

Status train() {
  auto module = std::make_shared<Module>();
  Builder b(*module, "step");
  const Var x = b.param("x", {DType::kF32, {4, 2}}), y = b.param("y", {DType::kF32, {4, 1}});
  const Var w1 = b.weight("w1", {DType::kF32, {2, 16}}),
            w2 = b.weight("w2", {DType::kF32, {16, 1}});
  const Var error = matmul(tanh(matmul(x, w1) + 0.5), w2) - y;
  const Var loss = reduce_mean(error * error, {0, 1});
  const auto gradients = grad(loss, std::vector{w1, w2});
  b.result("loss", loss);
  for (auto [name, w, g] : {std::tuple{"w1", w1, gradients[0]}, {"w2", w2, gradients[1]}}) {
    b.result(name, w - g * 0.2);  // the new weight
    b.donate(name, name);         // takes the place of the old one
  }
  const FuncId step = TEGULA_TRY(b.finish_into_module());
  const Compiled compiled = TEGULA_TRY(compile(module, step, {}));
  std::printf("%lld FLOPs a step\n", static_cast<long long>(compiled.plan->flops()));

  Rank rank(1);
  Store weights(rank);
  const auto session = TEGULA_TRY(Session::create(compiled.plan, rank));
  float xs[] = {0, 0, 0, 1, 1, 0, 1, 1}, ys[] = {0, 1, 1, 0};
  TEGULA_TRY(session->bind("x", xs));
  TEGULA_TRY(session->bind("y", ys));
  TEGULA_TRY(session->bind_store(weights));
  for (const auto& [name, w] : weights)
    for (int i = 0; i < w.ref.numel(); ++i)
      w.ref.as<float>()[i] = 2 * philox_uniform(/*seed=*/1, /*stream=*/name.back(), i) - 1;
  for (int i = 0; i <= 100; ++i) {
    TEGULA_TRY(session->run());
    if (i % 20 == 0)
      std::printf("step %3d  loss %.5f\n", i, session->result("loss").as<float>()[0]);
  }
  const float last = session->result("loss").as<float>()[0];
  if (!(last < 0.01f)) return internal_error(cat("it did not learn: loss ", last));
  return {};
}

int main() {
  const Status done = train();
  if (!done.ok()) std::fprintf(stderr, "%s\n", done.error().to_string().c_str());
  return done.ok() ? 0 : 1;
}
