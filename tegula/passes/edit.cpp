#include "tegula/passes/edit.h"

#include <numeric>

#include "tegula/base/algorithm.h"

namespace tegula {

Edit::Edit(Function& f) : f_(f), map_(f.values.size()), dropped_(f.nodes.size(), 0) {
  std::iota(map_.begin(), map_.end(), 0u);
}

void Edit::put_before(NodeId n) {
  const auto end = static_cast<NodeId>(f_.nodes.size());
  const NodeId begin =
      inserted_.empty() ? static_cast<NodeId>(dropped_.size()) : inserted_.back().second;
  if (end > begin) inserted_.emplace_back(n, end);
}

void Edit::apply() {
  std::vector<ValueId> new_value(f_.values.size(), kNone);
  inserted_.empty() ? close_gaps(new_value) : rebuild(new_value);
  if (!f_.shardings.empty()) move_shardings(new_value);
  for (Param& p : f_.params) p.value = new_value[p.value];
  for (Output& r : f_.results) r.value = renumbered(r.value, new_value);
}

void Edit::move_shardings(const std::vector<ValueId>& new_value) {
  const std::vector<Sharding> old = std::move(f_.shardings);
  f_.shardings.clear();
  for (const bool is_own : {true, false})
    for (ValueId v = 0; v < old.size(); ++v) {
      const ValueId to = (resolve(v) == v) == is_own ? new_value[resolve(v)] : kNone;
      if (to != kNone && !old[v].empty() && !f_.sharding(to)) f_.set_sharding(to, old[v]);
    }
}

ValueId Edit::renumbered(ValueId v, const std::vector<ValueId>& new_value) const {
  const ValueId to = new_value[resolve(v)];
  TEGULA_CHECK(to != kNone, "a dropped value is still read: ", v, " of ", f_.name);
  return to;
}

void Edit::close_gaps(std::vector<ValueId>& new_value) {
  std::vector<NodeId> new_node(f_.nodes.size(), kNone);
  NodeId n_nodes = 0;
  for (NodeId n = 0; n < f_.nodes.size(); ++n)
    if (!dropped_[n]) new_node[n] = n_nodes++;
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
  for (NodeId n = 0; n < f_.nodes.size(); ++n) {
    if (new_node[n] == kNone) continue;
    Node& node = f_.nodes[n];
    for (ValueId& v : node.inputs) v = renumbered(v, new_value);
    node.first_output = node.n_outputs ? new_value[node.first_output] : kNone;
    if (new_node[n] != n) f_.nodes[new_node[n]] = std::move(node);
  }
  f_.nodes.resize(n_nodes);
}

void Edit::rebuild(std::vector<ValueId>& new_value) {
  std::vector<Value> values;
  values.reserve(f_.values.size());
  for (ValueId v = 0; v < f_.values.size(); ++v) {
    const Value& value = f_.values[v];
    if (value.node != kNone || value.index == kNone) continue;
    new_value[v] = static_cast<ValueId>(values.size());
    values.push_back(value);
  }
  std::vector<Node> nodes;
  nodes.reserve(f_.nodes.size() - n_dropped_);
  auto put = [&](NodeId n) {
    Node& node = f_.nodes[n];
    for (ValueId& v : node.inputs) v = renumbered(v, new_value);
    const auto first = static_cast<ValueId>(values.size());
    for (uint32_t i = 0; i < node.n_outputs; ++i) {
      new_value[node.output(i)] = first + i;
      values.push_back(f_.values[node.output(i)]);
      values.back().node = static_cast<NodeId>(nodes.size());
    }
    node.first_output = node.n_outputs ? first : kNone;
    nodes.push_back(std::move(node));
  };
  auto appended = static_cast<NodeId>(dropped_.size());
  auto next = inserted_.begin();
  for (NodeId n = 0; n < dropped_.size(); ++n) {
    for (; next != inserted_.end() && next->first == n; ++next)
      while (appended < next->second) put(appended++);
    if (!dropped_[n]) put(n);
  }
  f_.values = std::move(values);
  f_.nodes = std::move(nodes);
}

bool remove_dead_nodes(Function& f) {
  std::vector<uint8_t> live(f.nodes.size(), 0);
  auto mark = [&](ValueId v) {
    if (f.values[v].node != kNone) live[f.values[v].node] = 1;
  };
  for (const Output& r : f.results) mark(r.value);
  for (auto n = static_cast<NodeId>(f.nodes.size()); n-- > 0;)
    if (live[n])
      for (ValueId v : f.nodes[n].inputs) mark(v);
  if (std::find(live.begin(), live.end(), 0) == live.end()) return false;
  Edit edit(f);
  for (NodeId n = 0; n < f.nodes.size(); ++n)
    if (!live[n]) edit.drop(n);
  edit.apply();
  return true;
}

}  // namespace tegula
