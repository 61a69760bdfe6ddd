#include "tegula/plan/gather_alike.h"

#include <algorithm>

#include "tegula/ir/opdef.h"
#include "tegula/plan/order.h"

namespace tegula {

namespace {

// Of each value's buffer, whether a node of the backward reads it.
std::vector<bool> read_by_backward(const Function& f, const std::vector<ValueId>& root) {
  std::vector<bool> is_read(f.values.size());
  for (const Node& n : f.nodes)
    if (n.phase == Phase::kBackward && !n.op->is_view)
      for (const ValueId v : n.inputs) is_read[root[v]] = true;
  return is_read;
}

std::vector<bool> of_weights(const Function& f) {
  std::vector<bool> is_weight(f.values.size());
  for (const Param& p : f.params) is_weight[p.value] = p.role == Role::kWeight;
  return is_weight;
}

// Whether n may come first, and live no longer than it does.
bool comes_first(const Function& f, const Node& n, const std::vector<bool>& is_weight,
                 const std::vector<bool>& is_read) {
  if (n.op->is_view || n.phase != Phase::kForward || n.inputs.empty()) return false;
  for (const ValueId v : n.inputs)
    if (!is_weight[v]) return false;
  for (uint32_t i = 0; i < n.n_outputs; ++i)
    if (!is_read[n.output(i)]) return false;
  return f.values[n.output()].node != kNone;
}

}  // namespace

std::vector<NodeId> gather_alike(const Function& f, const std::vector<NodeId>& order) {
  const std::vector<ValueId> root = view_roots(f);
  const std::vector<bool> is_read = read_by_backward(f, root), is_weight = of_weights(f);
  std::vector<NodeId> gathered = order;
  std::stable_partition(gathered.begin(), gathered.end(), [&](NodeId n) {
    return comes_first(f, f.nodes[n], is_weight, is_read);
  });
  auto update = gathered.end();
  while (update != gathered.begin() && f.nodes[*(update - 1)].phase == Phase::kUpdate) --update;
  std::vector<int> wave(f.nodes.size(), 0);
  for (auto at = update; at != gathered.end(); ++at) {
    const Node& n = f.nodes[*at];
    for (const ValueId v : n.inputs)
      if (const NodeId from = f.values[v].node; from != kNone)
        wave[*at] = std::max(wave[*at], wave[from]);
    if (!n.op->is_view) ++wave[*at];
  }
  std::stable_sort(update, gathered.end(), [&](NodeId a, NodeId b) { return wave[a] < wave[b]; });
  return gathered;
}

}  // namespace tegula
