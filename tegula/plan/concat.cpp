// A concat (an op that joins) whose operands are written where it would put them: nothing is moved
// then. The step stays in the plan, its operands are views of its result.
#include <map>

#include "tegula/base/algorithm.h"
#include "tegula/ir/interpret.h"
#include "tegula/plan/memory.h"
#include "tegula/plan/planner.h"
#include "tegula/plan/views.h"

namespace tegula {

namespace {

// A piece's contiguous bytes in rows of the whole: element o·length + r goes to o·pitch + r.
struct Rows {
  int64_t length = 0, pitch = 0;
};

// The same elements of a piece where the whole has them; false: a dim goes over the end of a row.
bool spread(PlanTensor& t, const Rows& rows, int64_t at) {
  const int64_t size = size_bytes(t.type.dtype);
  int64_t within = t.byte_offset / size % rows.length;
  for (int d = 0; d < t.type.shape.rank(); ++d) {
    const int64_t n = t.type.shape[d].bound();
    if (n == 1) continue;
    if (t.stride[d] < 0) return false;
    if (t.stride[d] % rows.length == 0) {
      t.stride[d] = t.stride[d] / rows.length * rows.pitch;
    } else {
      within += (n - 1) * t.stride[d];
    }
  }
  if (within >= rows.length) return false;
  const int64_t from = t.byte_offset / size;
  t.byte_offset = (at + from / rows.length * rows.pitch + from % rows.length) * size;
  return true;
}

// From `dim` on: what a row of pieces is made of.
bool is_const_from(const Shape& s, int dim) {
  return std::all_of(s.begin() + dim, s.end(), [](const Dim& d) { return d.is_const(); });
}

}  // namespace

// The producers and the concat as they would be; empty: it must be a copy.
std::map<int, Step> Planner::joined_in_place(int concat) const {
  const Step& join = plan_.steps[concat];
  const PlanTensor& whole = join.out[0];
  if (plan_.slots[whole.slot].kind != SlotKind::kArena || !is_contiguous(whole)) return {};
  const auto dim = static_cast<int>(join.attrs.i(join.op->joins));
  if (!is_const_from(whole.type.shape, dim)) return {};
  int64_t below = 1, at = 0;
  for (int d = dim + 1; d < whole.type.shape.rank(); ++d) below *= whole.type.shape[d].bound();
  // A row of whole pieces leaves each as it was but for where it begins.
  const auto writes_there = [&](const Step& s, const PlanTensor& t) {
    return s.kernel && !s.op->collective &&
           (s.kernel->writes_strides || (is_contiguous(t) && t.byte_offset % kAlignment == 0));
  };
  std::map<int, Step> moved;
  std::vector<int> seen;
  for (const PlanTensor& piece : join.in) {
    const Slot& slot = plan_.slots[piece.slot];
    const int first = producer_[piece.slot];
    if (slot.kind != SlotKind::kArena || slot.bytes != piece.type.bytes() || slot.bytes == 0 ||
        !is_contiguous(piece) || slot.last_step != concat || first < 0 ||
        std::count(seen.begin(), seen.end(), piece.slot) > 0)
      return {};
    seen.push_back(piece.slot);
    const Rows rows = {below * piece.type.shape[dim].bound(),
                       below * whole.type.shape[dim].bound()};
    for (int i = first; i <= concat; ++i) {
      const Step& s = plan_.steps[i];
      const auto lies_there = [&](const PlanTensor& t) { return t.slot == piece.slot; };
      // A piece that is a concat in place itself has been written by the steps before it: those
      // write where this one puts it, too.
      const bool is_piece = is_concat_in_place(s);
      const bool reads = std::any_of(s.in.begin(), s.in.end(), lies_there);
      const bool writes = std::any_of(s.out.begin(), s.out.end(), lies_there);
      if (i != concat && reads && !is_piece) return {};
      if (i != concat && !writes) continue;
      Step& m = moved.try_emplace(i, s).first->second;
      for (std::vector<PlanTensor>* all : {&m.in, &m.out}) {
        if (all == (i == concat ? &m.out : &m.in) && !is_piece) continue;
        for (PlanTensor& t : *all) {
          if (!lies_there(t)) continue;
          if (!spread(t, rows, at)) return {};
          t.slot = whole.slot;
          if (i != concat && !is_piece && !writes_there(s, t)) return {};
        }
      }
    }
    at += rows.length;
  }
  for (const auto& extents : some_extents(module_->symbols, plan_.least))
    for (const auto& [i, s] : moved) {
      const auto in = refs_at(s.in, extents), out = refs_at(s.out, extents);
      const Attrs attrs = attrs_at(s.attrs, extents);
      if (s.kernel && s.kernel->supports && !are_empty(out) &&
          !s.kernel->supports({&attrs, in, out, s.program.get(), &options_.target, s.tuning}))
        return {};
    }
  return moved;
}

void Planner::join_in_place() {
  for (int i = 0; i < static_cast<int>(plan_.steps.size()); ++i) {
    if (plan_.steps[i].op->joins.empty()) continue;
    std::map<int, Step> moved = joined_in_place(i);
    if (moved.empty()) continue;
    Step& join = plan_.steps[i];
    int& begins = producer_[join.out[0].slot];
    for (const PlanTensor& t : join.in) {
      begins = std::min(begins, producer_[t.slot]);
      plan_.slots[t.slot].bytes = 0;
    }
    for (auto& [at, step] : moved) plan_.steps[at] = std::move(step);
    join.bytes = 0;
  }
}

}  // namespace tegula
