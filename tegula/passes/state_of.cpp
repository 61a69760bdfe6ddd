#include "tegula/passes/state_of.h"

namespace tegula {

std::vector<ValueId> state_of_values(const Function& f) {
  std::vector<ValueId> state(f.values.size(), kNone);
  for (const Param& p : f.params)
    if (p.role != Role::kInput) state[p.value] = p.value;
  for (const Node& n : f.nodes)
    for (ValueId v : n.inputs)
      if (n.phase == Phase::kUpdate && state[v] != kNone) state[n.output()] = state[v];
  for (size_t id = f.nodes.size(); id-- > 0;) {
    const Node& n = f.nodes[id];
    if (n.phase != Phase::kUpdate || n.n_outputs != 1) continue;
    for (ValueId v : n.inputs) {
      const Node* from = f.producer(v);
      if (from && from->phase == Phase::kUpdate && state[v] == kNone &&
          f.type(v).shape == f.type(n.output()).shape)
        state[v] = state[n.output()];
    }
  }
  return state;
}

}  // namespace tegula
