#include "tegula/passes/edit.h"

#include <numeric>

namespace tegula {

Edit::Edit(Function& f) : f_(f), map_(f.values.size()), dropped_(f.nodes.size(), 0) {
  std::iota(map_.begin(), map_.end(), 0u);
}

void Edit::apply() {
  std::vector<NodeId> new_node(f_.nodes.size(), kNone);
  NodeId n_nodes = 0;
  for (NodeId n = 0; n < f_.nodes.size(); ++n)
    if (!dropped_[n]) new_node[n] = n_nodes++;

  std::vector<ValueId> new_value(f_.values.size(), kNone);
  ValueId n_values = 0;
  for (ValueId v = 0; v < f_.values.size(); ++v) {
    Value& value = f_.values[v];
    if (value.node != kNone) {
      if (dropped_[value.node]) continue;
      value.node = new_node[value.node];
    } else if (value.index == kNone) {
      continue;  // left over by a builder
    }
    new_value[v] = n_values;
    if (n_values != v) f_.values[n_values] = value;
    ++n_values;
  }
  f_.values.resize(n_values);

  auto renumber = [&](ValueId& v) {
    const ValueId to = new_value[map_[v]];
    TEGULA_CHECK(to != kNone, "a dropped value is still read: ", v, " of ", f_.name);
    v = to;
  };
  for (NodeId n = 0; n < f_.nodes.size(); ++n) {
    if (new_node[n] == kNone) continue;
    Node& node = f_.nodes[n];
    for (ValueId& v : node.inputs) renumber(v);
    node.first_output = node.n_outputs ? new_value[node.first_output] : kNone;
    if (new_node[n] != n) f_.nodes[new_node[n]] = std::move(node);
  }
  f_.nodes.resize(n_nodes);
  for (Param& p : f_.params) p.value = new_value[p.value];
  for (Output& r : f_.results) renumber(r.value);
}

bool remove_dead_nodes(Function& f) {
  Edit edit(f);
  std::vector<uint8_t> live(f.nodes.size(), 0);
  auto mark = [&](ValueId v) {
    if (f.values[v].node != kNone) live[f.values[v].node] = 1;
  };
  for (const Output& r : f.results) mark(r.value);
  for (auto n = static_cast<NodeId>(f.nodes.size()); n-- > 0;) {
    if (live[n]) {
      for (ValueId v : f.nodes[n].inputs) mark(v);
    } else {
      edit.drop(n);
    }
  }
  if (!edit.any()) return false;
  edit.apply();
  return true;
}

}  // namespace tegula
