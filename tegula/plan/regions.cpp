// The plans of a step's regions. They run one at a time and leave every result in its home, so that
// their arenas may lie in one place: the step's workspace, behind a line for a loop's condition.
#include "tegula/plan/regions.h"

#include "tegula/base/algorithm.h"
#include "tegula/ir/regions.h"
#include "tegula/plan/memory.h"
#include "tegula/plan/planner.h"

namespace tegula {

namespace {

PlanTensor without_leading_dim(const PlanTensor& t) {
  PlanTensor s = t;
  s.type.shape.erase(0);
  std::copy_n(t.stride + 1, kMaxRank - 1, s.stride);
  return s;
}

// The layouts in which region r of the step finds its parameters, and what its results overwrite.
RegionPorts ports_of(const Step& step, size_t region, size_t n_results) {
  RegionPorts p;
  p.overwrites.assign(n_results, -1);
  const RegionLayout l(*step.op->regions, step.attrs, step.in.size());
  for (size_t i = l.first; i < step.in.size(); ++i)
    p.params.push_back(l.is_carry(i) ? step.out[i - l.first]
                       : l.is_x(i)   ? without_leading_dim(step.in[i])
                                     : step.in[i]);
  if (step.op->regions->parts.items[region].role == RegionRole::kBody)
    for (size_t i = 0; i < l.n_carry; ++i) p.overwrites[i] = static_cast<int>(i);
  return p;
}

}  // namespace

Status Planner::plan_regions(Step& step, const Node& n) {
  int64_t bytes = 0;
  for (size_t r = 0; r < n.regions.size(); ++r) {
    RegionPorts ports = ports_of(step, r, (*module_)[n.regions[r]].results.size());
    ports.least = plan_.least;
    Planner planner(module_, n.regions[r], options_, &ports);
    Plan sub = TEGULA_TRY(planner.run());
    bytes = std::max(bytes, sub.arena_bytes);
    step.regions.push_back(std::make_shared<const Plan>(std::move(sub)));
  }
  step.workspace = new_slot(kRegionArena + bytes, cat("regions of ", n.op->name), n.phase);
  plan_.slots.back().is_workspace = true;
  return {};
}

}  // namespace tegula
