// A two-layer perceptron learns exclusive or, op by op. xor_compiled.cpp plans the same maths
// first.
#include <cstdio>

#include "tegula/tegula.h"

int main() {
  using namespace tegula;
  const float xs[] = {0, 0, 0, 1, 1, 0, 1, 1}, ys[] = {0, 1, 1, 0};
  float start[48];
  for (int i = 0; i < 48; ++i) start[i] = 2 * philox_uniform(/*seed=*/1, /*stream=*/0, i) - 1;

  Rank rank(1);
  Eager e(rank);
  const Var x = e.tensor({DType::kF32, {4, 2}}, xs), y = e.tensor({DType::kF32, {4, 1}}, ys);
  Var w1 = e.tensor({DType::kF32, {2, 16}}, start);
  Var w2 = e.tensor({DType::kF32, {16, 1}}, start + 32), loss;
  for (int i = 0; i < 100; ++i) {
    const Var error = matmul(tanh(matmul(x, w1) + 0.5), w2) - y;
    loss = reduce_mean(error * error, {0, 1});
    const auto gradients = grad(loss, std::vector{w1, w2});
    // Detached from the step that made them: else all steps' values live on for their gradient.
    w1 = e.detach(w1 - gradients[0] * 0.2), w2 = e.detach(w2 - gradients[1] * 0.2);
  }
  const auto last = e.read(loss);
  if (last.ok()) std::printf("loss %.5f\n", last->as<float>()[0]);
  return last.ok() && last->as<float>()[0] < 0.01f ? 0 : 1;
}
