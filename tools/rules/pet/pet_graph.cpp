// A side of a rule as a graph that can be run.
#include "tegula/base/algorithm.h"
#include "tegula/ops/dynamic_slice.h"
#include "tegula/ops/math.h"
#include "tegula/passes/superopt/bridge.h"
#include "tools/rules/pet/pet.h"

namespace tegula::superopt {

namespace {
// At constant starts.
Var updated(Builder& b, const Node& n, std::span<const Var> in) {
  const std::vector<int64_t> dims = n.attrs.integers("dim"), starts = n.attrs.integers("start");
  std::vector<Var> at;
  for (int d = 0; d < in[0].rank(); ++d) {
    const auto k = static_cast<size_t>(std::find(dims.begin(), dims.end(), d) - dims.begin());
    const int64_t start = k < std::min(dims.size(), starts.size()) ? starts[k] : 0;
    at.push_back(fill(b, static_cast<double>(start), {DType::kI64, {}}));
  }
  return dynamic_update_slice(in[0], in[1], at);
}
}  // namespace

Result<Module> graph_of(const Rule& rule, int side) {
  Module module;
  Builder b(module, rule.name);
  std::vector<Var> values;
  for (const Input& x : rule.graph.inputs) {
    Shape shape;
    for (const Poly& p : x.shape) {
      if (!p.is_const()) return unsupported(cat(rule.name, ": ", p.text(), " has no size"));
      shape.push_back(p.constant());
    }
    values.push_back(b.param(x.name, {DType::kF32, shape}));
  }
  const auto size = static_cast<size_t>(side) + 1;
  std::vector<uint8_t> is_needed(std::max(size, values.size()));
  is_needed[static_cast<size_t>(side)] = 1;
  for (size_t n = size; n-- > values.size();)
    for (const int x : rule.graph.nodes[n].in) is_needed[static_cast<size_t>(x)] |= is_needed[n];
  for (size_t n = values.size(); n < size; ++n) {
    const Node& node = rule.graph.nodes[n];
    if (!is_needed[n]) {
      values.emplace_back();
      continue;
    }
    std::vector<Var> in;
    for (const int x : node.in) in.push_back(values[static_cast<size_t>(x)]);
    if (node.kind == "dynamic_update_slice") {
      values.push_back(updated(b, node, in));
      continue;
    }
    const KindOfNode call{node.kind, node.attrs, {}};
    values.push_back(TEGULA_TRY(emit_kind(b, call, in, {DType::kF32, {}})));
  }
  b.result("y", values[static_cast<size_t>(side)]);
  TEGULA_TRY(b.finish_into_module());
  return module;
}

}  // namespace tegula::superopt
