// Which slots are one slot (donated state, results written over operands that die there), and where
// the others lie in the arena.
#include <numeric>

#include "tegula/base/range.h"
#include "tegula/ir/regions.h"
#include "tegula/kernels/registry.h"
#include "tegula/ops/table.h"
#include "tegula/plan/memory.h"
#include "tegula/plan/planner.h"
#include "tegula/plan/views.h"

namespace tegula {

bool same_view(const PlanTensor& a, const PlanTensor& b) {
  if (a.slot != b.slot || a.byte_offset != b.byte_offset || !(a.type == b.type)) return false;
  for (int d = 0; d < a.type.shape.rank(); ++d)
    if (a.stride[d] != b.stride[d] && a.type.shape[d].bound() != 1) return false;
  return true;
}

// Results that have a place of their own: donated state; in a region every result.
void Planner::find_homes() {
  if (!ports_) {
    for (const auto& p : plan_.params)
      if (p.donated_to >= 0) homes_.push_back({p.donated_to, p.tensor, true});
    return;
  }
  for (size_t r = 0; r < ports_->overwrites.size(); ++r) {
    const int over = ports_->overwrites[r];
    if (over >= 0) {
      homes_.push_back({static_cast<int>(r), plan_.params[over].tensor, true});
      continue;
    }
    PlanTensor t;
    t.type = plan_.results[r].tensor.type;
    set_contiguous(t);
    const std::string name = cat("-> ", plan_.results[r].name);
    t.slot = new_slot(t.type.bytes(), name, Phase::kForward);
    plan_.slots.back().kind = SlotKind::kParam;
    plan_.slots.back().param = static_cast<int>(plan_.params.size());
    producer_.back() = -1;
    plan_.params.push_back({name, Role::kInput, static_cast<int>(r), t});
    homes_.push_back({static_cast<int>(r), t, false});
  }
}

void Planner::find_lifetimes() {
  for (size_t s = 0; s < plan_.slots.size(); ++s) {
    plan_.slots[s].first_step = std::max(producer_[s], 0);
    plan_.slots[s].last_step = plan_.slots[s].first_step;
  }
  auto touch = [&](int slot, int step) {
    Slot& s = plan_.slots[slot];
    s.first_step = std::min(s.first_step, step), s.last_step = std::max(s.last_step, step);
  };
  for (int i = 0; i < static_cast<int>(plan_.steps.size()); ++i) {
    const Step& step = plan_.steps[i];
    for (const PlanTensor& t : step.in) touch(t.slot, i);
    for (const PlanTensor& t : step.out) touch(t.slot, i);
    if (step.workspace >= 0) touch(step.workspace, i);
  }
  for (const auto& r : plan_.results) touch(r.tensor.slot, static_cast<int>(plan_.steps.size()));
  note_uses();
}

void Planner::note_uses() {
  uses_.clear();
  uses_of_.assign(plan_.slots.size(), {-1, -1});
  const auto note = [&](const PlanTensor& t, int step) {
    auto& [first, last] = uses_of_[t.slot];
    const auto at = static_cast<int>(uses_.size());
    uses_.push_back({step, -1});
    first < 0 ? first = at : uses_[last].next = at;
    last = at;
  };
  for (int i = 0; i < static_cast<int>(plan_.steps.size()); ++i) {
    for (const PlanTensor& t : plan_.steps[i].in) note(t, i);
    for (const PlanTensor& t : plan_.steps[i].out) note(t, i);
  }
  for (int r = 0; r < static_cast<int>(plan_.results.size()); ++r)
    note(plan_.results[r].tensor, -1 - r);
}

// May everything in slot `from` (written first by step `producer`) live in `to` instead? Only if
// nobody touches `to` later, and the producer itself only through an operand it may overwrite.
bool Planner::may_take_over(int from, int to, int producer, bool alias_at_producer) {
  const Slot& a = plan_.slots[from];
  const Slot& b = plan_.slots[to];
  if (a.bytes != b.bytes || a.is_workspace || b.is_workspace) return false;
  if (b.last_step > producer) return false;
  const Step& step = plan_.steps[producer];
  const PlanTensor* written = nullptr;
  for (const PlanTensor& t : step.out) {
    if (t.slot == to) return false;
    if (t.slot == from) written = &t;
  }
  for (const PlanTensor& t : step.in) {
    if (t.slot != to) continue;
    if (!alias_at_producer || !written) return false;
    PlanTensor moved = *written;
    moved.slot = to;
    if (!same_view(t, moved)) return false;
  }
  return true;
}

void Planner::merge(int from, int to) {
  auto move = [&](PlanTensor& t) {
    if (t.slot == from) t.slot = to;
  };
  Slot& gone = plan_.slots[from];
  Slot& kept = plan_.slots[to];
  auto& [first, last] = uses_of_[from];
  auto& [first_kept, last_kept] = uses_of_[to];
  for (int i = first; i >= 0; i = uses_[i].next) {
    const int step = uses_[i].step;
    if (step < 0) {
      move(plan_.results[-1 - step].tensor);
      continue;
    }
    Step& s = plan_.steps[step];
    for (PlanTensor& t : s.in) move(t);
    for (PlanTensor& t : s.out) move(t);
  }
  if (first >= 0) {
    first_kept < 0 ? first_kept = first : uses_[last_kept].next = first;
    last_kept = last, first = last = -1;
  }
  kept.last_step = std::max(kept.last_step, gone.last_step);
  gone.bytes = 0;
}

// The elementwise kernels read each element before they write it.
bool overwrites(const Step& s, size_t operand, size_t result) {
  if (s.op->is_elementwise) return true;
  if (s.program) return s.kernel && operand >= s.op->regions->n_factors;
  for (const auto& [in, out] : s.op->aliases)
    if (static_cast<size_t>(in) == operand && static_cast<size_t>(out) == result) return true;
  return starts_in_place(*s.op, s.attrs, operand, result);
}

bool is_concat_in_place(const Step& s) { return !s.op->joins.empty() && s.bytes == 0; }

bool reads_from(const Step& next, const Step& s) {
  return any_of(next.in, [&](const PlanTensor& t) {
    return any_of(s.out, [&](const PlanTensor& o) { return o.slot == t.slot; });
  });
}

// May a launch of s be the beginning of that of the step after it? Then it overwrites nothing that
// it reads: each block of the other reads it.
bool begins_with(const Step& next, const Step& s) {
  return s.program && s.kernel && next.kernel && takes_in_programs(*next.kernel) &&
         reads_from(next, s);
}

// May a launch of s end with that of the step after it? Then this overwrites nothing that s reads.
bool ends_with(const Step& s, const Step& next) {
  return next.program && next.program->n_inner == 0 && s.kernel && next.kernel &&
         takes_in_programs(*s.kernel) && reads_from(next, s);
}

// A result that is a parameter's own contents is copied out before the run may overwrite them.
void Planner::rescue_old_values() {
  Node at_start;
  at_start.op = &copy_op;
  std::vector<Step> body;
  body.swap(plan_.steps);  // what is added now comes first
  const size_t n_slots = plan_.slots.size();
  for (size_t r = 0; r < plan_.results.size(); ++r) {
    PlanTensor& value = plan_.results[r].tensor;
    if (plan_.slots[value.slot].kind != SlotKind::kParam) continue;
    const Home* home = nullptr;
    bool is_overwritten = false;
    for (const Home& h : homes_) {
      if (h.result == static_cast<int>(r)) home = &h;
      is_overwritten |= h.tensor.slot == value.slot;
    }
    if (home && same_view(value, home->tensor)) continue;
    if (home && !home->is_read) {
      plan_.steps.push_back(copy_step(value, home->tensor, at_start));
      value = plan_.steps.back().out[0];
    } else if (is_overwritten) {
      value = add_copy(value, at_start);
    }
  }
  const auto n_first = static_cast<int>(plan_.steps.size());
  for (size_t s = 0; s < n_slots; ++s)
    if (producer_[s] >= 0) producer_[s] += n_first;
  for (Step& s : body) plan_.steps.push_back(std::move(s));
}

// Can the value's producer write it straight into its home? Then the two slots become one.
bool Planner::settles_in_place(const PlanTensor& value, const PlanTensor& home) {
  const Slot& slot = plan_.slots[value.slot];
  if (slot.kind != SlotKind::kArena || value.byte_offset != 0 || !is_contiguous(value))
    return false;
  const int producer = producer_[value.slot];
  const Step& step = plan_.steps[producer];
  bool alias = true;
  for (size_t i = 0; i < step.in.size(); ++i)
    for (size_t j = 0; j < step.out.size(); ++j)
      if (step.in[i].slot == home.slot && step.out[j].slot == value.slot)
        alias = alias && overwrites(step, i, j);
  if (!may_take_over(value.slot, home.slot, producer, alias)) return false;
  merge(value.slot, home.slot);
  return true;
}

void Planner::settle_results() {
  std::vector<std::pair<PlanTensor, const Home*>> copies;  // to run after everything else
  for (const Home& h : homes_) {
    const PlanTensor value = plan_.results[h.result].tensor;
    if (!same_view(value, h.tensor) && !settles_in_place(value, h.tensor))
      copies.emplace_back(value, &h);
  }
  Node at_end;
  at_end.op = &copy_op;
  at_end.phase = Phase::kUpdate;
  for (const auto& [stale, home] : copies) {
    // Read again: a slot may have been merged into another since.
    PlanTensor& value = plan_.results[home->result].tensor;
    plan_.steps.push_back(copy_step(value, home->tensor, at_end));
    value = plan_.steps.back().out[0];
  }
  // A parameter's new result may be another result as well, or a view of it: that is a copy.
  std::vector<bool> has_home(plan_.results.size()), is_home(plan_.slots.size());
  for (const Home& h : homes_) {
    has_home[h.result] = true;
    is_home[h.tensor.slot] = true;
  }
  const size_t n_slots = is_home.size();  // a copy has a new one
  for (size_t r = 0; r < plan_.results.size(); ++r) {
    const auto slot = static_cast<size_t>(plan_.results[r].tensor.slot);
    if (!has_home[r] && slot < n_slots && is_home[slot])
      plan_.results[r].tensor = add_copy(plan_.results[r].tensor, at_end);
  }
}

void Planner::overwrite_operands() {
  for (int i = 0; i < static_cast<int>(plan_.steps.size()); ++i) {
    Step& step = plan_.steps[i];
    if (const Step* next = launched_after(step); next && begins_with(*next, step)) continue;
    for (size_t j = 0; j < step.out.size(); ++j) {
      const int to_merge = step.out[j].slot;
      const Slot& out = plan_.slots[to_merge];
      if (out.kind != SlotKind::kArena || out.bytes == 0 || producer_[to_merge] != i) continue;
      for (size_t k = 0; k < step.in.size(); ++k) {
        const int into = step.in[k].slot;
        const Slot& in = plan_.slots[into];
        if (in.kind != SlotKind::kArena || in.last_step != i || in.bytes != out.bytes ||
            into == to_merge || !overwrites(step, k, j))
          continue;
        PlanTensor moved = step.out[j];
        moved.slot = into;
        if (!same_view(step.in[k], moved)) continue;
        bool others_agree = true;
        for (size_t o = 0; o < step.in.size(); ++o)
          if (step.in[o].slot == into && !(same_view(step.in[o], moved) && overwrites(step, o, j)))
            others_agree = false;
        for (size_t o = 0; o < step.out.size(); ++o)
          if (o != j && step.out[o].slot == into) others_agree = false;
        if (!others_agree) continue;
        // The merged slot keeps its own producer: it lives from there on.
        const int last = out.last_step;
        merge(to_merge, into);
        plan_.slots[into].last_step = last;
        break;
      }
    }
  }
}

// The step launched after s where launches may become one: not in training, where buffers are
// large. Null: none.
const Step* Planner::launched_after(const Step& s) const {
  if (!joins_launches_) return nullptr;
  const Step *next = &s + 1, *end = plan_.steps.data() + plan_.steps.size();
  while (next < end && is_concat_in_place(*next)) ++next;
  return next < end ? next : nullptr;
}

// Per step the last of those that may become one launch with it (gather_alike.h, or which begin or
// end with the other): until then what it read is not written over.
std::vector<int> Planner::launched_with() const {
  std::vector<int> last(plan_.steps.size());
  std::iota(last.begin(), last.end(), 0);
  for (size_t i = last.size(); i-- > 0;) {
    const Step& s = plan_.steps[i];
    const Step* next = is_concat_in_place(s) ? nullptr : launched_after(s);
    if (next && s.kernel &&
        (s.kernel == next->kernel || begins_with(*next, s) || ends_with(s, *next)))
      last[i] = last[next - plan_.steps.data()];
  }
  return last;
}

void Planner::finish_layout() {
  const std::vector<int> last = launched_with();
  std::vector<Lifetime> used, lives;
  std::vector<size_t> which;
  for (size_t i = 0; i < plan_.slots.size(); ++i) {
    const Slot& s = plan_.slots[i];
    if (s.kind != SlotKind::kArena || s.bytes == 0) continue;
    const auto end = static_cast<size_t>(s.last_step);
    const bool waits = end < last.size() && !s.is_workspace;
    used.push_back({s.first_step, s.last_step, s.bytes});
    lives.push_back({s.first_step, waits ? last[end] : s.last_step, s.bytes});
    which.push_back(i);
  }
  const Layout layout = plan_offsets(lives);
  for (size_t i = 0; i < which.size(); ++i) plan_.slots[which[i]].offset = layout.offsets[i];
  for (Slot& s : plan_.slots)
    if (s.kind == SlotKind::kArena && s.bytes == 0) s.offset = 0;
  plan_.arena_bytes = layout.bytes;
  plan_.lower_bound_bytes = live_lower_bound(used);
}

}  // namespace tegula
