#include "tegula/passes/remat_chain.h"

#include "tegula/base/algorithm.h"
#include "tegula/cost/price.h"
#include "tegula/ops/table.h"

namespace tegula {

namespace {

bool is_plain_view(const Node& n) { return n.op->is_view && n.inputs.size() == 1; }

class Finder {
 public:
  Finder(const Module& module, const Function& f, const PassOptions& options)
      : module_(module), f_(f), options_(options) {}

  RematChain run(int max_segments) {
    find_roots();
    find_parts();
    find_times();
    find_cuts();
    join(max_segments);
    assign();
    find_saved();
    find_late();
    find_backward_bytes();
    return std::move(c_);
  }

 private:
  NodeId maker(ValueId v) const { return f_.values[v].node; }
  bool is_source(const Node& n) const { return n.op == &constant_op || n.op == &iota_op; }

  void find_roots() {
    c_.root.resize(f_.values.size());
    for (ValueId v = 0; v < f_.values.size(); ++v) {
      const Node* n = f_.producer(v);
      c_.root[v] = n && is_plain_view(*n) ? c_.root[n->inputs[0]] : v;
    }
  }

  void find_parts() {
    c_.is_backward.assign(f_.nodes.size(), 0);
    has_data_.assign(f_.values.size(), 0);
    for (const Param& p : f_.params)
      has_data_[p.value] = p.role == Role::kInput && f_.type(p.value).shape.numel() > 1;
    for (NodeId n = 0; n < f_.nodes.size(); ++n) {
      const Node& node = f_.nodes[n];
      bool data = false, backward = node.phase != Phase::kForward;
      for (ValueId v : node.inputs) {
        data |= has_data_[v] != 0;
        backward |= maker(v) != kNone && c_.is_backward[maker(v)];
      }
      c_.is_backward[n] = backward;
      for (uint32_t i = 0; i < node.n_outputs; ++i) has_data_[node.output(i)] = data;
    }
  }

  // Compute, or memory traffic. Elementwise ops fuse: Recomputer knows which are computed again
  // together, and sees what they take.
  void find_times() {
    c_.seconds.assign(f_.nodes.size(), 0);
    c_.seconds_per_byte = price(*options_.target, DType::kF32, 0, 1);
    for (NodeId n = 0; n < f_.nodes.size(); ++n) {
      const Node& node = f_.nodes[n];
      if (c_.is_backward[n] || node.op->is_view) continue;
      const auto in = f_.input_types(node), out = f_.output_types(node);
      const OpCall call{node.op, &node.attrs, in, out, &module_, node.regions};
      Work work = work_of(call);
      work.bytes *= node.op->is_elementwise ? 0 : node.op->is_reduction ? 0.5 : 1;
      work.launches = 0;  // what is computed again is most likely fused
      c_.seconds[n] = price(*options_.target, work, in.empty() ? DType::kF32 : in[0].dtype);
    }
  }

  // Sweeps the forward part: which values made so far are read later?
  void find_cuts() {
    std::vector<NodeId> last_use(f_.values.size(), 0);
    int64_t largest = 0;
    for (NodeId n = 0; n < f_.nodes.size(); ++n) {
      if (c_.is_backward[n]) continue;
      for (ValueId v : f_.nodes[n].inputs) last_use[c_.root[v]] = n;
      for (uint32_t i = 0; i < f_.nodes[n].n_outputs; ++i)
        largest = std::max(largest, f_.type(f_.nodes[n].output(i)).bytes());
    }
    std::vector<std::vector<ValueId>> ends(f_.nodes.size());
    int64_t n_live = 0;
    uint64_t sum_of_ids = 0;  // with one live value: that value
    ValueId previous = kNone;
    for (NodeId n = 0; n < f_.nodes.size(); ++n) {
      const Node& node = f_.nodes[n];
      if (c_.is_backward[n]) continue;
      for (ValueId v : ends[n]) --n_live, sum_of_ids -= v;
      if (!is_plain_view(node))
        for (uint32_t i = 0; i < node.n_outputs; ++i) {
          const ValueId v = node.output(i);
          const Type& t = f_.type(v);
          const bool is_small = t.shape.numel() <= 1 || t.bytes() * 256 <= largest;
          if (!has_data_[v] || is_small || last_use[v] <= n) continue;
          ++n_live, sum_of_ids += v;
          ends[last_use[v]].push_back(v);
        }
      const auto v = static_cast<ValueId>(sum_of_ids);
      if (n_live != 1 || v == previous || !has_data_[node.output()]) continue;
      cut_after_.push_back(n);
      cut_.push_back(previous = v);
    }
  }

  void join(int max_segments) {
    while (static_cast<int>(cut_.size()) + 1 > max_segments) {
      size_t w = 0;
      for (size_t i = 1; i < cut_.size(); i += 2)
        cut_[w] = cut_[i], cut_after_[w++] = cut_after_[i];
      cut_.resize(w), cut_after_.resize(w);
    }
  }

  void assign() {
    c_.n_segments = static_cast<int>(cut_.size()) + 1;
    c_.entry.assign(1, kNone);
    c_.entry.insert(c_.entry.end(), cut_.begin(), cut_.end());
    c_.segment.assign(f_.nodes.size(), RematChain::kNowhere);
    int at = 0;
    for (NodeId n = 0; n < f_.nodes.size(); ++n) {
      while (at < c_.n_segments - 1 && n > cut_after_[at]) ++at;
      if (!c_.is_backward[n] && has_data_[f_.nodes[n].output()]) c_.segment[n] = at;
    }
    // Work that no data reaches belongs to the one segment that reads it, if it is one.
    constexpr int kUnread = -2;
    std::vector<int> reader(f_.nodes.size(), kUnread);
    for (NodeId n = static_cast<NodeId>(f_.nodes.size()); n-- > 0;) {
      if (c_.is_backward[n]) continue;
      const Node& node = f_.nodes[n];
      if (!has_data_[node.output()] && reader[n] >= 0 && !is_source(node))
        c_.segment[n] = reader[n];
      const int me = c_.segment[n];
      for (ValueId v : node.inputs)
        if (const NodeId p = maker(v); p != kNone)
          reader[p] = reader[p] == kUnread || reader[p] == me ? me : RematChain::kNowhere;
    }
  }

  void find_saved() {
    c_.saved.resize(static_cast<size_t>(c_.n_segments));
    c_.entry_is_saved.assign(static_cast<size_t>(c_.n_segments), 0);
    c_.read_views.resize(f_.values.size());
    std::vector<uint8_t> seen(f_.values.size(), 0);
    for (const Output& r : f_.results) seen[c_.root[r.value]] = 1;  // kept anyway
    for (size_t s = 1; s < c_.entry.size(); ++s) seen[c_.entry[s]] = 2;
    for (NodeId n = 0; n < f_.nodes.size(); ++n) {
      if (!c_.is_backward[n]) continue;
      for (ValueId v : f_.nodes[n].inputs) {
        const ValueId r = c_.root[v];
        const NodeId p = maker(r);
        if (p == kNone || c_.is_backward[p]) continue;
        if (v != r && !c_.is_backward[maker(v)]) c_.read_views[r].push_back(v);
        if (seen[r] == 2)
          for (size_t s = 1; s < c_.entry.size(); ++s) c_.entry_is_saved[s] |= c_.entry[s] == r;
        if (seen[r] || c_.segment[p] < 0) continue;
        seen[r] = 1;
        c_.saved[c_.segment[p]].push_back(r);
      }
    }
  }

  void find_late() {
    c_.late.assign(f_.nodes.size(), RematChain::kNowhere);
    for (NodeId n = 0; n < f_.nodes.size(); ++n) {
      if (!c_.is_backward[n]) continue;
      for (ValueId v : f_.nodes[n].inputs)
        if (const NodeId p = maker(v); p != kNone)
          c_.late[n] = std::max(c_.late[n], c_.is_backward[p] ? c_.late[p] : c_.segment[p]);
    }
  }

  // Gradients of weights live until their update, which runs as soon as its operands are there.
  void find_backward_bytes() {
    std::vector<NodeId> ready(f_.nodes.size()), last(f_.values.size(), 0);
    const auto n_segments = static_cast<size_t>(c_.n_segments);
    std::vector<NodeId> begins(n_segments, kNone);
    std::vector<int> owner(f_.values.size(), RematChain::kNowhere);
    for (size_t s = 0; s < n_segments; ++s) {
      for (ValueId v : c_.saved[s]) owner[v] = static_cast<int>(s);
      if (c_.entry[s] != kNone) owner[c_.entry[s]] = static_cast<int>(s);
    }
    for (NodeId n = 0; n < f_.nodes.size(); ++n) {
      const Node& node = f_.nodes[n];
      const bool waits = c_.is_backward[n] && node.phase != Phase::kBackward;
      ready[n] = waits ? 0 : n;
      for (ValueId v : node.inputs) {
        const NodeId p = maker(v);
        if (waits && p != kNone) ready[n] = std::max(ready[n], ready[p]);
        const int s = owner[c_.root[v]];
        if (c_.is_backward[n] && s >= 0 && begins[s] == kNone) begins[s] = n;
      }
      for (ValueId v : node.inputs) last[c_.root[v]] = std::max(last[c_.root[v]], ready[n]);
    }
    for (size_t s = n_segments - 1; s-- > 0;)
      if (begins[s] == kNone) begins[s] = begins[s + 1];
    c_.backward_bytes.assign(n_segments, 0);
    for (NodeId n = 0; n < f_.nodes.size(); ++n) {
      if (!c_.is_backward[n] || f_.nodes[n].op->is_view || f_.nodes[n].phase != Phase::kBackward)
        continue;
      for (uint32_t i = 0; i < f_.nodes[n].n_outputs; ++i) {
        const ValueId v = f_.nodes[n].output(i);
        for (size_t s = 0; s < n_segments; ++s)
          if (begins[s] != kNone && n < begins[s] && begins[s] <= last[v])
            c_.backward_bytes[s] += f_.type(v).bytes();
      }
    }
  }

  const Module& module_;
  const Function& f_;
  const PassOptions& options_;
  RematChain c_;
  std::vector<uint8_t> has_data_;  // per value
  std::vector<NodeId> cut_after_;  // per cut: the last node before it …
  std::vector<ValueId> cut_;       // … and the value that crosses it
};

}  // namespace

RematChain find_chain(const Module& module, const Function& f, const PassOptions& options,
                      int max_segments) {
  return Finder(module, f, options).run(max_segments);
}

Recomputer::Recomputer(const Function& f, const RematChain& chain)
    : f_(f),
      chain_(chain),
      node_seen_(f.nodes.size(), 0),
      value_seen_(f.values.size(), 0),
      moved_seen_(f.values.size(), 0),
      is_saved_(f.values.size(), 0) {
  for (const auto& segment : chain.saved)
    for (const ValueId v : segment) is_saved_[v] = 1;
}

Recompute Recomputer::plan(int begin, int end, const std::vector<uint8_t>& keep) {
  Recompute r;
  std::vector<NodeId> stack;
  ++tick_;
  auto want = [&](ValueId v) {
    if (value_seen_[v] == tick_) return;
    value_seen_[v] = tick_;
    const NodeId p = f_.values[v].node;
    const int s = p == kNone ? RematChain::kNowhere : chain_.segment[p];
    if (s < begin || s >= end || keep[v]) {
      r.inputs.push_back(v);
    } else if (node_seen_[p] != tick_) {
      node_seen_[p] = tick_;
      r.nodes.push_back(p);
      stack.push_back(p);
    }
  };
  for (int s = begin; s < end; ++s) {
    const auto k = static_cast<size_t>(s);
    for (ValueId v : chain_.saved[k])
      if (!keep[v]) want(v), r.bytes += f_.type(v).bytes();
    if (s > begin && chain_.entry_is_saved[k])
      want(chain_.entry[k]), r.bytes += f_.type(chain_.entry[k]).bytes();
  }
  while (!stack.empty()) {
    const NodeId n = stack.back();
    stack.pop_back();
    for (ValueId v : f_.nodes[n].inputs) want(v);
  }
  // Whoever reads a view of such a value reads a view of the new one.
  for (size_t i = 0, n_made = r.nodes.size(); i < n_made; ++i)
    for (uint32_t k = 0; k < f_.nodes[r.nodes[i]].n_outputs; ++k)
      for (ValueId v : chain_.read_views[f_.nodes[r.nodes[i]].output(k)])
        for (NodeId n = f_.values[v].node; node_seen_[n] != tick_;
             n = f_.values[f_.nodes[n].inputs[0]].node) {
          node_seen_[n] = tick_;
          r.nodes.push_back(n);
        }
  std::sort(r.nodes.begin(), r.nodes.end());
  for (NodeId n : r.nodes) r.seconds += chain_.seconds[n];
  r.seconds += chain_.seconds_per_byte * static_cast<double>(moved_by_fused(r));
  return r;
}

// Bytes of what the elementwise nodes read that none of them makes, and of what they make for
// others: the rest stays in registers.
int64_t Recomputer::moved_by_fused(const Recompute& r) {
  const auto is_fused = [&](ValueId v) {
    const NodeId p = f_.values[v].node;
    return p != kNone && node_seen_[p] == tick_ && f_.nodes[p].op->is_elementwise;
  };
  int64_t bytes = 0;
  ++moved_tick_;
  const auto move = [&](ValueId v) {
    if (moved_seen_[v] == moved_tick_) return;
    moved_seen_[v] = moved_tick_;
    bytes += f_.type(v).bytes();
  };
  for (const NodeId n : r.nodes) {
    const Node& node = f_.nodes[n];
    if (node.op->is_view) continue;
    for (const ValueId in : node.inputs)
      if (const ValueId v = chain_.root[in]; node.op->is_elementwise != is_fused(v)) move(v);
    if (!node.op->is_elementwise) continue;
    for (uint32_t i = 0; i < node.n_outputs; ++i)
      if (is_saved_[node.output(i)]) move(node.output(i));
  }
  return bytes;
}

}  // namespace tegula
