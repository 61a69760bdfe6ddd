#include "tegula/base/algorithm.h"
#include "tools/rules/generate/generate.h"
#include "tools/rules/prove/evaluate.h"

namespace tegula::superopt {

FieldTensor random_tensor(std::vector<int64_t> shape, uint64_t seed) {
  FieldTensor x{std::move(shape), {}};
  size_t n = 1;
  for (const int64_t extent : x.shape) n *= static_cast<size_t>(std::max<int64_t>(extent, 0));
  for (size_t k = 0; k < n; ++k) x.data.push_back(Residue::of_bits(mix(seed ^ mix(k + 1))));
  return x;
}

bool is_refuted(const Rule& rule, int tries, uint64_t seed) {
  const std::vector<Guard> needed = conditions(rule.graph, rule.left);
  for (int n = 0, met = 0; met < tries && n < 400 * tries; ++n) {
    Assignment at;
    uint64_t draw = mix(seed + static_cast<uint64_t>(n));
    auto next = [&](uint64_t below) { return static_cast<int64_t>((draw = mix(draw)) % below); };
    for (const Symbol s : rule.sizes) at.integers[s] = 1 + next(6);
    for (const Symbol s : rule.integers) at.integers[s] = next(8) - 2;
    for (const Symbol s : rule.scalars) at.scalars[s] = Residue::of_bits(draw = mix(draw));
    if (!at.holds(rule.where) || !at.holds(needed)) continue;
    ++met;
    std::vector<FieldTensor> inputs;
    for (const Input& x : rule.graph.inputs) {
      std::vector<int64_t> shape;
      for (const Poly& p : x.shape) shape.push_back(at.integer(p));
      inputs.push_back(random_tensor(std::move(shape), draw = mix(draw)));
    }
    const auto left = evaluate(rule.graph, rule.left, at, inputs),
               right = evaluate(rule.graph, rule.right, at, inputs);
    if (!left.ok()) continue;
    if (!right.ok() || left->shape != right->shape || left->data != right->data) return true;
  }
  return false;
}

}  // namespace tegula::superopt
