#include "tegula/passes/superopt/blocks.h"

#include <map>
#include <tuple>

#include "tegula/base/algorithm.h"

namespace tegula::superopt {

namespace {
// "layers.3.attn" -> "layers.3": up to the first part that is a number.
std::string place_of(const std::string& scope) {
  for (size_t at = 0; at < scope.size();) {
    const size_t end = std::min(scope.find('.', at), scope.size());
    if (scope[at] >= '0' && scope[at] <= '9') return scope.substr(0, end);
    at = end + 1;
  }
  return "";
}

bool may_belong(const Node& n) {
  return !n.op->has_effect && n.regions.empty() && n.op->collective == nullptr &&
         n.phase != Phase::kUpdate;
}

// Drops blocks until no two or more of them wait for one another, the smallest first.
void drop_cycles(const Function& f, std::vector<Block>& blocks) {
  while (true) {
    std::vector<size_t> of(f.nodes.size());  // whole blocks and single nodes
    for (size_t n = 0; n < of.size(); ++n) of[n] = blocks.size() + n;
    for (size_t b = 0; b < blocks.size(); ++b)
      for (const NodeId n : blocks[b].nodes) of[n] = b;
    std::vector<std::vector<size_t>> after(blocks.size() + of.size());
    std::vector<size_t> waits(after.size(), 0), ready;
    for (NodeId n = 0; n < f.nodes.size(); ++n)
      for (const ValueId v : f.nodes[n].inputs)
        if (const NodeId by = f.values[v].node; by != kNone && of[by] != of[n])
          after[of[by]].push_back(of[n]), ++waits[of[n]];
    for (size_t k = 0; k < waits.size(); ++k)
      if (waits[k] == 0) ready.push_back(k);
    while (!ready.empty()) {
      const size_t k = ready.back();
      ready.pop_back();
      for (const size_t next : after[k])
        if (--waits[next] == 0) ready.push_back(next);
    }
    size_t worst = blocks.size();
    for (size_t b = 0; b < blocks.size(); ++b)
      if (waits[b] > 0 &&
          (worst == blocks.size() || blocks[b].nodes.size() < blocks[worst].nodes.size()))
        worst = b;
    if (worst == blocks.size()) return;
    blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(worst));
  }
}

std::string moved(const std::string& scope, const std::string& from, const std::string& to) {
  return from.empty() ? scope : scope.starts_with(from) ? to + scope.substr(from.size()) : scope;
}
}  // namespace

Users::Users(const Function& f) : begin_(f.values.size() + 1, 0) {
  for (const Node& n : f.nodes)
    for (const ValueId v : n.inputs) ++begin_[v + 1];
  for (size_t v = 0; v < f.values.size(); ++v) begin_[v + 1] += begin_[v];
  nodes_.resize(begin_.back());
  std::vector<uint32_t> next(begin_.begin(), begin_.end() - 1);
  for (NodeId n = 0; n < f.nodes.size(); ++n)
    for (const ValueId v : f.nodes[n].inputs) nodes_[next[v]++] = n;
}

std::vector<Block> blocks_of(const Module& module, const Function& f) {
  using Key = std::tuple<std::string, Phase, int>;
  std::vector<std::string> place(f.nodes.size());
  std::map<std::pair<std::string, Phase>, NodeId> first;
  for (NodeId n = 0; n < f.nodes.size(); ++n) {
    if (!may_belong(f.nodes[n])) continue;
    place[n] = place_of(module.scopes[f.nodes[n].origin.scope]);
    first.try_emplace({place[n], f.nodes[n].phase}, n);
  }
  std::map<Key, Block> blocks;
  for (const auto& [of, begin] : first) {
    // How often a path to the value has left the block and come back; −1: it has not been there.
    std::vector<int> level(f.values.size(), -1);
    for (NodeId n = begin; n < f.nodes.size(); ++n) {
      const Node& node = f.nodes[n];
      const bool is_ours = may_belong(node) && place[n] == of.first && node.phase == of.second;
      int l = is_ours ? 0 : -1;
      for (const ValueId v : node.inputs) {
        const NodeId by = f.values[v].node;
        const bool is_inside = by != kNone && may_belong(f.nodes[by]) && place[by] == of.first &&
                               f.nodes[by].phase == of.second;
        l = std::max(l, level[v] + (is_ours && !is_inside && level[v] >= 0 ? 1 : 0));
      }
      for (uint32_t i = 0; i < node.n_outputs; ++i) level[node.output(i)] = l;
      if (is_ours) blocks[{of.first, of.second, l}].nodes.push_back(n);
    }
  }
  std::vector<uint8_t> is_result(f.values.size(), 0);
  for (const Output& r : f.results) is_result[r.value] = 1;
  const Users users(f);
  std::vector<Block> all;
  for (auto& [key, b] : blocks) {
    b.place = std::get<0>(key);
    std::vector<uint8_t> inside(f.nodes.size(), 0);
    for (const NodeId n : b.nodes) inside[n] = 1;
    for (const NodeId n : b.nodes) {
      for (const ValueId v : f.nodes[n].inputs)
        if ((f.values[v].node == kNone || !inside[f.values[v].node]) &&
            std::find(b.inputs.begin(), b.inputs.end(), v) == b.inputs.end())
          b.inputs.push_back(v);
      for (uint32_t i = 0; i < f.nodes[n].n_outputs; ++i) {
        const ValueId v = f.nodes[n].output(i);
        const auto by = users.of(v);
        if (is_result[v] || std::any_of(by.begin(), by.end(), [&](NodeId u) { return !inside[u]; }))
          b.outputs.push_back(v);
      }
    }
    all.push_back(std::move(b));
  }
  drop_cycles(f, all);
  return all;
}

Result<Module> extract(const Module& module, const Function& f, const Block& block) {
  Module m;
  m.symbols = module.symbols;
  Builder b(m, "block");
  std::map<ValueId, ValueId> now;
  for (const ValueId v : block.inputs) {
    const Value& value = f.values[v];
    const Role role = value.node == kNone && f.params[value.index].role == Role::kWeight
                          ? Role::kWeight
                          : Role::kInput;
    now[v] = b.param(cat("p", now.size()), value.type, role).id();
  }
  for (const NodeId n : block.nodes) {
    Node node = f.nodes[n];
    node.origin.scope = m.scope(moved(module.scopes[node.origin.scope], block.place, "*"));
    std::vector<ValueId> inputs;
    for (const ValueId v : node.inputs) inputs.push_back(now[v]);
    const uint32_t n_outputs = node.n_outputs;
    const ValueId was = node.first_output;
    const ValueId is = b.append(std::move(node), std::move(inputs), f.output_types(f.nodes[n]));
    for (uint32_t i = 0; i < n_outputs; ++i) now[was + i] = is + i;
  }
  for (size_t k = 0; k < block.outputs.size(); ++k)
    b.result(cat("r", k), Var(&b, now[block.outputs[k]]));
  TEGULA_TRY(b.finish_into_module());
  return m;
}

namespace {
class Replacer {
 public:
  Replacer(Module& module, const Function& f, std::span<const Replacement> all)
      : module_(module), f_(f), all_(all), rw_(module, f), of_(f.nodes.size(), kNone) {
    for (uint32_t k = 0; k < all.size(); ++k)
      for (const NodeId n : all[k].block->nodes) of_[n] = k;
  }
  Result<Function> run() {
    for (NodeId n = 0; n < f_.nodes.size(); ++n) node(n);
    return rw_.finish();
  }

 private:
  void need(ValueId v) {
    if (!rw_.has(v)) node(f_.values[v].node);
  }
  // Blocks are convex, so that all they read can stand before all they give.
  void node(NodeId n) {
    const Node& of = f_.nodes[n];
    if (of_[n] != kNone) {
      if (of_[n] < is_done_.size() && is_done_[of_[n]]) return;
      is_done_.resize(all_.size());
      is_done_[of_[n]] = 1;
      return block(all_[of_[n]]);
    }
    if (of.n_outputs > 0 && rw_.has(of.first_output)) return;
    for (const ValueId v : of.inputs) need(v);
    rw_.clone(of);
  }
  void block(const Replacement& r) {
    for (const ValueId v : r.block->inputs) need(v);
    const Function& g = r.by->functions[0];
    std::vector<ValueId> now(g.values.size(), kNone);
    for (size_t k = 0; k < g.params.size(); ++k)
      now[g.params[k].value] = rw_.id(r.block->inputs[k]);
    for (const Node& of : g.nodes) {
      Node node = of;
      node.origin.scope = module_.scope(moved(r.by->scopes[of.origin.scope], "*", r.block->place));
      std::vector<ValueId> inputs;
      for (const ValueId v : of.inputs) inputs.push_back(now[v]);
      const ValueId is =
          rw_.builder().append(std::move(node), std::move(inputs), g.output_types(of));
      for (uint32_t i = 0; i < of.n_outputs; ++i) now[of.output(i)] = is + i;
    }
    for (size_t k = 0; k < g.results.size(); ++k)
      rw_.bind(r.block->outputs[k], Var(&rw_.builder(), now[g.results[k].value]));
  }

  Module& module_;
  const Function& f_;
  std::span<const Replacement> all_;
  Rewriter rw_;
  std::vector<uint32_t> of_;  // per node: its replacement
  std::vector<uint8_t> is_done_;
};
}  // namespace

Result<Function> replace(Module& module, const Function& f, std::span<const Replacement> all) {
  return Replacer(module, f, all).run();
}

}  // namespace tegula::superopt
