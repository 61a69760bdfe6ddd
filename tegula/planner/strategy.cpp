#include "tegula/planner/strategy.h"

#include "tegula/base/algorithm.h"
#include "tegula/cost/price.h"
#include "tegula/ir/regions.h"
#include "tegula/ops/table.h"

namespace tegula::planner {

namespace {

double seconds_of_part(const LocalCall& c, const Accelerator& device, int64_t& flops) {
  LocalCall at = c;
  for (auto* side : {&at.in, &at.out})
    for (Type& t : *side)
      for (int d = 0; d < t.shape.rank(); ++d) t.shape[d] = t.shape[d].bound();
  const Work work = work_of(at.call());
  flops = static_cast<int64_t>(work.flops);
  if (c.op->is_view || work.flops + work.bytes == 0) return 0;
  return price(device, work, work.unit == Unit::kRows ? Number::kF32 : Number::kBf16);
}

struct Grown {
  Strategy strategy;
  LocalCall call;
};

// One axis more. `map`: of the call as it is, if it has one.
bool grow(Grown& g, const Result<DimMap>& map, const AxisCut& cut, int64_t n) {
  if (!map.ok() && cut.kind == AxisCut::kAlong) return false;
  const DimMap none, &m = map.ok() ? *map : none;
  std::vector<AxisSharding> in, out;
  if (n == 1 && cut.kind != AxisCut::kWhole) return false;
  if (!states_of_cut(g.call, m, cut, n, in, out)) return false;
  if (!g.call.cut(cut, n, 0, &m).ok()) return false;
  g.strategy.cuts.push_back(cut);
  g.strategy.in.resize(g.call.in.size()), g.strategy.out.resize(g.call.out.size());
  for (size_t k = 0; k < in.size(); ++k) g.strategy.in[k].push_back(in[k]);
  for (size_t r = 0; r < out.size(); ++r) g.strategy.out[r].push_back(out[r]);
  return true;
}

std::vector<AxisCut> cuts_of(const LocalCall& call, const Result<DimMap>& map, int64_t n) {
  std::vector<AxisCut> cuts = {AxisCut{}};
  if (n == 1 || has_bodies(*call.op) || call.op->has_effect || !map.ok()) return cuts;
  for (size_t f = 0; f < map->factors.size(); ++f)
    cuts.push_back({AxisCut::kAlong, static_cast<int>(f), 1});
  if (passes_sums(*call.op)) cuts.push_back({AxisCut::kLinear});
  return cuts;
}

void finish(Grown& g, const MeshLinks& links) {
  g.strategy.seconds = seconds_of_part(g.call, links.cluster().device, g.strategy.flops);
  for (const Type& t : g.call.out)
    g.strategy.bytes += real(t.shape.numel()) * real(size_bytes(t.dtype));
}

}  // namespace

bool passes_sums(const OpDef& op) {
  return (op.is_linear || &op == &add_op || &op == &sub_op) && !op.has_effect;
}

std::vector<Strategy> strategies_of(const Module& module, const Function& f, const Node& node,
                                    const MeshLinks& links, size_t most) {
  std::vector<Grown> all = {{{}, LocalCall(module, f, node)}};
  for (const MeshAxis& axis : links.mesh().axes) {
    std::vector<Grown> more;
    for (const Grown& g : all) {
      const auto map = dim_map(g.call.call());
      for (const AxisCut& cut : cuts_of(g.call, map, axis.size))
        if (Grown next = g; grow(next, map, cut, axis.size)) more.push_back(std::move(next));
    }
    all = std::move(more);
  }
  std::vector<Strategy> list;
  for (Grown& g : all) finish(g, links), list.push_back(std::move(g.strategy));
  if (list.size() > most) {
    std::stable_sort(list.begin() + 1, list.end(),
                     [](const Strategy& a, const Strategy& b) { return a.seconds < b.seconds; });
    list.resize(most);
  }
  return list;
}

Result<Strategy> strategy_of(const Module& module, const Function& f, const Node& node,
                             const MeshLinks& links, const std::vector<AxisCut>& cuts) {
  Grown g{{}, LocalCall(module, f, node)};
  for (size_t a = 0; a < cuts.size(); ++a)
    if (!grow(g, dim_map(g.call.call()), cuts[a], links.mesh().axes[a].size))
      return unsupported(cat(node.op->name, " cannot be cut so over ", links.mesh().axes[a].name));
  finish(g, links);
  return std::move(g.strategy);
}

}  // namespace tegula::planner
