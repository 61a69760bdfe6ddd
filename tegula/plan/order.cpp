#include "tegula/plan/order.h"

#include <numeric>
#include <span>

#include "tegula/ir/opdef.h"

namespace tegula {

std::vector<ValueId> view_roots(const Function& f) {
  std::vector<ValueId> root(f.values.size());
  for (ValueId v = 0; v < f.values.size(); ++v) root[v] = v;
  for (const Node& n : f.nodes)
    if (n.op->is_view)
      for (uint32_t i = 0; i < n.n_outputs; ++i)
        root[n.output(i)] = root[n.inputs[n.inputs.size() > 1 ? i : 0]];
  return root;
}

namespace {

// Lists of nodes, one per value, behind each other: all are counted before any is filled.
class NodeLists {
 public:
  explicit NodeLists(size_t n) : begin_(n + 1, 0) {}
  void count(ValueId v) { ++begin_[v + 1]; }
  void reserve() {
    std::partial_sum(begin_.begin(), begin_.end(), begin_.begin());
    end_.assign(begin_.begin(), begin_.end() - 1);
    nodes_.resize(begin_.back());
  }
  void add(ValueId v, NodeId n) { nodes_[end_[v]++] = n; }
  std::span<const NodeId> operator[](ValueId v) const {
    return std::span(nodes_).subspan(begin_[v], begin_[v + 1] - begin_[v]);
  }

 private:
  std::vector<uint32_t> begin_, end_;
  std::vector<NodeId> nodes_;
};

struct Scheduler {
  const Function& f;
  std::vector<ValueId> root = view_roots(f);
  std::vector<bool> pinned;         // never freed: parameters and results
  NodeLists users;                  // of each value
  std::vector<uint32_t> missing;    // per node: inputs not yet computed
  std::vector<uint32_t> remaining;  // per root: computing nodes that still read it
  std::vector<bool> done;
  std::vector<NodeId> order;
  NodeLists readers;        // per root: computing nodes
  std::vector<bool> waits;  // nodes that read what comes in the background; empty: none does

  explicit Scheduler(const Function& fn)
      : f(fn),
        pinned(fn.values.size(), false),
        users(fn.values.size()),
        missing(fn.nodes.size(), 0),
        remaining(fn.values.size(), 0),
        done(fn.nodes.size(), false),
        readers(fn.values.size()) {
    for (const Param& p : f.params) pinned[p.value] = true;
    for (const Output& r : f.results) pinned[root[r.value]] = true;
    for (const Node& n : f.nodes)
      for (ValueId v : n.inputs) {
        if (f.values[v].node != kNone) users.count(v);
        if (!n.op->is_view) readers.count(root[v]), ++remaining[root[v]];
      }
    users.reserve(), readers.reserve();
    for (NodeId n = 0; n < f.nodes.size(); ++n)
      for (ValueId v : f.nodes[n].inputs) {
        if (f.values[v].node != kNone) users.add(v, n), ++missing[n];
        if (!f.nodes[n].op->is_view) readers.add(root[v], n);
      }
    order.reserve(f.nodes.size());
    for (const Node& n : f.nodes)
      if (n.op->collective && n.attrs.flag("background")) {
        waits.resize(f.nodes.size());
        for (NodeId u : readers[n.output()]) waits[u] = true;
      }
  }

  // Bytes allocated less bytes freed if n ran now.
  int64_t net(NodeId n) const {
    const Node& node = f.nodes[n];
    int64_t bytes = 0;
    if (!node.op->is_view)
      for (uint32_t i = 0; i < node.n_outputs; ++i) bytes += f.type(node.output(i)).bytes();
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      const ValueId r = root[node.inputs[k]];
      bool repeated = false;
      uint32_t mine = 0;
      for (size_t j = 0; j < node.inputs.size(); ++j) {
        if (root[node.inputs[j]] != r) continue;
        repeated |= j < k;
        ++mine;
      }
      if (!repeated && !pinned[r] && remaining[r] == mine) bytes -= f.type(r).bytes();
    }
    return bytes;
  }

  void emit(NodeId first) {
    std::vector<NodeId> stack = {first};
    while (!stack.empty()) {
      const NodeId n = stack.back();
      stack.pop_back();
      if (done[n]) continue;
      done[n] = true;
      order.push_back(n);
      const Node& node = f.nodes[n];
      for (uint32_t i = 0; i < node.n_outputs; ++i)
        for (NodeId u : users[node.output(i)]) --missing[u];
      if (!node.op->is_view)
        for (ValueId v : node.inputs) --remaining[root[v]];
      // Whoever became ready, or became the last reader of a buffer, may now shrink memory.
      auto consider = [&](NodeId u) {
        if (!done[u] && missing[u] == 0 && (waits.empty() || !waits[u]) &&
            (f.nodes[u].op->is_view || net(u) <= 0))
          stack.push_back(u);
      };
      for (ValueId v : node.inputs)
        if (remaining[root[v]] > 0 && remaining[root[v]] <= 2)
          for (NodeId u : readers[root[v]]) consider(u);
      for (uint32_t i = 0; i < node.n_outputs; ++i)
        for (NodeId u : users[node.output(i)]) consider(u);
    }
  }
};

}  // namespace

std::vector<NodeId> schedule_nodes(const Function& f) {
  Scheduler s(f);
  for (NodeId n = 0; n < f.nodes.size(); ++n)
    if (!s.done[n]) s.emit(n);
  return std::move(s.order);
}

}  // namespace tegula
