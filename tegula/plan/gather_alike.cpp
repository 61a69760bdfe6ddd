#include "tegula/plan/gather_alike.h"

#include <climits>
#include <map>
#include <string>

#include "tegula/base/range.h"
#include "tegula/base/shape.h"
#include "tegula/ir/opdef.h"
#include "tegula/ops/table.h"
#include "tegula/plan/order.h"

namespace tegula {

namespace {

// For each value's buffer, whether a node of the backward reads it.
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
bool comes_first(const Node& n, const std::vector<bool>& is_weight,
                 const std::vector<bool>& is_read) {
  if (n.op->is_view || n.phase != Phase::kForward || n.inputs.empty()) return false;
  for (const ValueId v : n.inputs)
    if (!is_weight[v]) return false;
  for (uint32_t i = 0; i < n.n_outputs; ++i)
    if (!is_read[n.output(i)]) return false;
  return true;
}

using Nodes = std::vector<NodeId>;

// The nodes in [begin, end) by wave; those of before are there.
void in_waves(const Function& f, Nodes::iterator begin, Nodes::iterator end) {
  std::vector<int> wave(f.nodes.size(), 0);
  for (auto at = begin; at != end; ++at) {
    const Node& n = f.nodes[*at];
    for (const ValueId v : n.inputs)
      if (const NodeId from = f.values[v].node; from != kNone)
        wave[*at] = std::max(wave[*at], wave[from]);
    if (!n.op->is_view) ++wave[*at];
  }
  std::stable_sort(begin, end, [&](NodeId a, NodeId b) { return wave[a] < wave[b]; });
}

void put_weights_first(const Function& f, Nodes& order) {
  const std::vector<bool> is_read = read_by_backward(f, view_roots(f)), is_weight = of_weights(f);
  std::stable_partition(order.begin(), order.end(),
                        [&](NodeId n) { return comes_first(f.nodes[n], is_weight, is_read); });
}

// Rows of a cache that can wait are put down in the next wave that has some of the same types:
// values' with keys'.
void meet_later(const Function& f, const Nodes& order, std::vector<int>& wave) {
  std::vector<int> last(f.nodes.size(), INT_MAX);  // wave before the first reader's
  std::map<std::string, std::vector<int>> waves;   // of each type, from the last on
  for (auto at = order.rbegin(); at != order.rend(); ++at) {
    const Node& n = f.nodes[*at];
    if (n.op == &scatter_op) {
      std::vector<int>& known = waves[cat(f.type(n.output()), " ", f.type(n.inputs[0]))];
      for (auto w = known.rbegin(); w != known.rend(); ++w)
        if (*w > wave[*at] && *w <= last[*at]) {
          wave[*at] = *w;
          break;
        }
      known.push_back(wave[*at]);
    }
    const int before = n.op->is_view ? last[*at] : wave[*at] - 1;
    for (const ValueId v : n.inputs)
      if (const NodeId from = f.values[v].node; from != kNone)
        last[from] = std::min(last[from], before);
  }
  // A view stands behind what it is a view of.
  for (const NodeId at : order) {
    const Node& n = f.nodes[at];
    if (!n.op->is_view) continue;
    for (const ValueId v : n.inputs)
      if (const NodeId from = f.values[v].node; from != kNone)
        wave[at] = std::max(wave[at], wave[from]);
  }
}

// By wave, where waves are counted from what is no weight.
void in_waves_of_inputs(const Function& f, Nodes& order) {
  constexpr int kOfWeights = -1;
  std::vector<int> wave(f.nodes.size(), kOfWeights);
  const std::vector<bool> is_weight = of_weights(f);
  for (const NodeId at : order) {
    const Node& n = f.nodes[at];
    for (const ValueId v : n.inputs) {
      const NodeId from = f.values[v].node;
      wave[at] = std::max(wave[at], from != kNone ? wave[from] : is_weight[v] ? kOfWeights : 0);
    }
    if (wave[at] != kOfWeights && !n.op->is_view) ++wave[at];
  }
  // A value that weights alone make has its first reader's.
  std::vector<int> first(f.values.size(), INT_MAX);
  for (auto at = order.rbegin(); at != order.rend(); ++at) {
    const Node& n = f.nodes[*at];
    if (wave[*at] == kOfWeights) {
      wave[*at] = INT_MAX;
      for (uint32_t i = 0; i < n.n_outputs; ++i)
        wave[*at] = std::min(wave[*at], first[n.output(i)]);
    }
    for (const ValueId v : n.inputs) first[v] = std::min(first[v], wave[*at]);
  }
  meet_later(f, order, wave);
  std::stable_sort(order.begin(), order.end(),
                   [&](NodeId a, NodeId b) { return wave[a] < wave[b]; });
}

}  // namespace

bool is_inference(const Function& f) {
  return all_of(f.nodes, [](const Node& n) { return n.phase == Phase::kForward; });
}

Nodes gather_alike(const Function& f, Nodes order) {
  if (is_inference(f)) {
    in_waves_of_inputs(f, order);
    return order;
  }
  put_weights_first(f, order);
  auto update = order.end();
  while (update != order.begin() && f.nodes[*(update - 1)].phase == Phase::kUpdate) --update;
  in_waves(f, update, order.end());
  return order;
}

}  // namespace tegula
