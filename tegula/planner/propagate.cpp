#include "tegula/planner/propagate.h"

#include "tegula/base/range.h"
#include "tegula/ir/regions.h"
#include "tegula/ops/table.h"

namespace tegula::planner {

namespace {

using Known = std::vector<std::optional<AxisSharding>>;  // by value, on one axis

class Propagator {
 public:
  Propagator(const Module& m, const Function& f, const Mesh& mesh, const Annotations& said)
      : f_(f), mesh_(mesh), said_(said) {
    for (const Node& n : f.nodes) calls_.emplace_back(m, f, n);
    out_.values.assign(f.values.size(), replicated(mesh));
    out_.nodes.resize(f.nodes.size());
  }

  Result<ShardedGraph> run() {
    for (size_t a = 0; a < mesh_.axes.size(); ++a) TEGULA_TRY(run_axis(a));
    return std::move(out_);
  }

 private:
  bool is_light(const Node& n) const { return n.op->is_elementwise || n.op->is_view; }

  Status run_axis(size_t a) {
    const int64_t n_ranks = mesh_.axes[a].size;
    known_.assign(f_.values.size(), std::nullopt);
    cut_.assign(f_.nodes.size(), std::nullopt);
    for (size_t v = 0; v < said_.size(); ++v)
      if (a < said_[v].size() && said_[v][a]) known_[v] = said_[v][a];
    for (const bool all : {false, true})
      for (bool any = n_ranks > 1; any;) {
        any = false;
        for (NodeId n = 0; n < f_.nodes.size(); ++n) any |= visit(n, n_ranks, all);
        for (NodeId n = static_cast<NodeId>(f_.nodes.size()); n-- > 0;)
          any |= visit(n, n_ranks, all);
        ++out_.rounds;
      }
    for (size_t v = 0; v < f_.values.size(); ++v)
      out_.values[v][a] = known_[v].value_or(AxisSharding{});
    for (NodeId n = 0; n < f_.nodes.size(); ++n) {
      const AxisCut cut = cut_[n].value_or(AxisCut{});
      out_.nodes[n].push_back(cut);
      std::vector<AxisSharding> in, out;
      if (cut.kind == AxisCut::kWhole)
        for (uint32_t r = 0; r < f_.nodes[n].n_outputs; ++r)
          out_.values[f_.nodes[n].output(r)][a] = {};
      TEGULA_TRY(calls_[n].cut(cut, n_ranks, 0));
    }
    return {};
  }

  // The cut that what is known says, in the order of operands and then results.
  std::optional<AxisCut> implied(NodeId id, const DimMap& map, int64_t n_ranks) const {
    const Node& n = f_.nodes[id];
    const LocalCall& c = calls_[id];
    const auto pends = [&](ValueId v) {
      return known_[v] && known_[v]->is_pending() && known_[v]->combine == Combine::kSum;
    };
    if (passes_sums(*n.op) && !n.inputs.empty() && all_of(n.inputs, pends))
      return AxisCut{AxisCut::kLinear};
    for (size_t k = 0; k < n.inputs.size(); ++k) {
      const auto& s = known_[n.inputs[k]];
      if (!s || !s->is_split()) continue;
      const AxisCut cut = cut_of_operand(c, map, k, *s, n_ranks);
      if (cut.kind != AxisCut::kWhole) return cut;
    }
    for (uint32_t r = 0; r < n.n_outputs; ++r) {
      const auto& s = known_[n.output(r)];
      if (!s || !s->is_split()) continue;
      // The factor that gives such a split, if one does.
      for (size_t factor = 0; factor < map.factors.size(); ++factor) {
        const AxisCut cut{AxisCut::kAlong, static_cast<int>(factor), 1};
        std::vector<AxisSharding> in, out;
        if (states_of_cut(c, map, cut, n_ranks, in, out) && out[r] == *s) return cut;
      }
    }
    return std::nullopt;
  }

  // Does the node learn something, or say it?
  bool visit(NodeId id, int64_t n_ranks, bool all) {
    const Node& n = f_.nodes[id];
    if (cut_[id] || (!all && !is_light(n)) || has_bodies(*n.op) || n.op->has_effect) return false;
    const bool is_touched =
        any_of(n.inputs, [&](ValueId v) { return known_[v]; }) || known_[n.output(0)];
    if (!is_touched) return false;
    const auto map = dim_map(calls_[id].call());
    if (!map.ok()) return false;
    const auto cut = implied(id, *map, n_ranks);
    std::vector<AxisSharding> in, out;
    if (!cut || !states_of_cut(calls_[id], *map, *cut, n_ranks, in, out)) return false;
    if (LocalCall tried = calls_[id]; !tried.cut(*cut, n_ranks, 0, &*map).ok()) return false;
    cut_[id] = cut;
    for (size_t k = 0; k < n.inputs.size(); ++k)
      if (!known_[n.inputs[k]] && in[k].is_split()) known_[n.inputs[k]] = in[k];
    for (uint32_t r = 0; r < n.n_outputs; ++r) known_[n.output(r)] = out[r];
    return true;
  }

  const Function& f_;
  const Mesh& mesh_;
  const Annotations& said_;
  std::vector<LocalCall> calls_;  // cut by the axes before
  Known known_;
  std::vector<std::optional<AxisCut>> cut_;
  ShardedGraph out_;
};

}  // namespace

Result<ShardedGraph> propagate(const Module& module, const Function& f, const Mesh& mesh,
                               const Annotations& annotations) {
  for (size_t v = 0; v < annotations.size(); ++v) {
    Sharding s = replicated(mesh);
    for (size_t a = 0; a < annotations[v].size(); ++a)
      if (annotations[v][a]) s[a] = *annotations[v][a];
    const auto local = local_shape(mesh, f.values[v].type.shape, s);
    if (!local.ok()) return invalid_argument(cat("value %", v, ": ", local.error().message));
  }
  return Propagator(module, f, mesh, annotations).run();
}

}  // namespace tegula::planner
