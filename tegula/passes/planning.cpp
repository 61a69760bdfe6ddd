#include "tegula/passes/planning.h"

#include <vector>

#include "tegula/base/algorithm.h"
#include "tegula/ir/module.h"

namespace tegula {

bool Planning::has_kernel(const OpCall&) const { return true; }

std::string_view Planning::order_of(const OpCall&) const { return "one order"; }

// The largest sum of live bytes in this order.
Result<int64_t> Planning::peak_bytes(const Module&, const Function& f) const {
  std::vector<ValueId> root(f.values.size());
  std::vector<NodeId> last(f.values.size(), 0);
  for (ValueId v = 0; v < f.values.size(); ++v) {
    const Node* n = f.producer(v);
    const uint32_t k = f.values[v].index;
    root[v] = n && n->op->is_view ? root[n->inputs[n->inputs.size() > 1 ? k : 0]] : v;
  }
  for (NodeId n = 0; n < f.nodes.size(); ++n)
    for (ValueId v : f.nodes[n].inputs) last[root[v]] = n;
  for (const Output& r : f.results) last[root[r.value]] = static_cast<NodeId>(f.nodes.size());
  std::vector<std::vector<ValueId>> ends(f.nodes.size() + 1);
  int64_t live = 0, peak = 0;
  for (NodeId n = 0; n < f.nodes.size(); ++n) {
    if (!f.nodes[n].op->is_view)
      for (uint32_t i = 0; i < f.nodes[n].n_outputs; ++i) {
        const ValueId v = f.nodes[n].output(i);
        live += f.type(v).bytes();
        ends[std::max(last[v], n)].push_back(v);
      }
    peak = std::max(peak, live);
    for (ValueId v : ends[n]) live -= f.type(v).bytes();
  }
  return peak;
}

}  // namespace tegula
