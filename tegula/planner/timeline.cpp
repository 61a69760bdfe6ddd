#include "tegula/planner/timeline.h"

#include <charconv>
#include <map>

#include "tegula/base/algorithm.h"
#include "tegula/ir/opdef.h"
#include "tegula/plan/memory.h"

namespace tegula::planner {

namespace {

constexpr std::string_view kLayers = "layers.";

// "layers.3.attn": the 3, and the text with `name` for it.
int layer_of(const std::string& scope) {
  const size_t at = scope.find(kLayers);
  if (at == scope.npos) return -1;
  int layer = -1;
  std::from_chars(scope.data() + at + kLayers.size(), scope.data() + scope.size(), layer);
  return layer;
}

std::string place_of(const std::string& scope, std::string_view name) {
  const size_t begin = scope.find(kLayers) + kLayers.size();
  const size_t end = std::min(scope.find('.', begin), scope.size());
  return cat(scope.substr(0, begin), name, scope.substr(end));
}

// Names what a step is, but for its layer: its types, and the parameters that it reads, without
// digits, so that updates of two weights are not taken for one another in whatever order they run.
std::string what_of(const Plan& plan, const Step& s) {
  std::string what = cat(static_cast<int>(s.phase), " ", s.op->name);
  for (const auto* side : {&s.in, &s.out})
    for (const PlanTensor& t : *side) {
      what += cat(" ", t.type);
      if (t.slot < 0) continue;
      const Slot& slot = plan.slots[static_cast<size_t>(t.slot)];
      if (slot.kind != SlotKind::kParam) continue;
      for (const char c : slot.name)
        if (c < '0' || c > '9') what += c;
    }
  return what;
}

// Outside of layers: before the first one's forward or behind its backward part, or in between.
// Copies: slots of what is made of weights alone.
enum class Where : uint8_t { kLayers, kFirst, kLast, kCopy };
using Wheres = std::vector<Where>;

// Says of which slots live bytes are asked: a bit for each Where.
using Mask = uint8_t;
constexpr Mask bit(Where w) { return static_cast<Mask>(1U << static_cast<unsigned>(w)); }
constexpr Mask kAll = 15, kNoCopies = 7;
Mask mask_of(bool has_first, bool has_last) {
  return bit(Where::kLayers) | (has_first ? bit(Where::kFirst) : 0) |
         (has_last ? bit(Where::kLast) : 0);
}

Wheres wheres_of_steps(const Plan& plan) {
  size_t first = plan.steps.size(), last = 0;
  for (size_t i = 0; i < plan.steps.size(); ++i)
    if (layer_of(plan.steps[i].scope) >= 0) first = std::min(first, i), last = i;
  Wheres all;
  for (size_t i = 0; i < plan.steps.size(); ++i)
    all.push_back(layer_of(plan.steps[i].scope) >= 0 ? Where::kLayers
                  : i < first || i > last            ? Where::kFirst
                                                     : Where::kLast);
  return all;
}

// By who writes them last.
Wheres wheres_of_slots(const Plan& plan) {
  Wheres all(plan.slots.size(), Where::kLayers);
  const Wheres steps = wheres_of_steps(plan);
  const auto is_of_weights = [&](const PlanTensor& t) {
    if (t.slot < 0) return false;
    const Slot& slot = plan.slots[static_cast<size_t>(t.slot)];
    if (slot.kind != SlotKind::kParam) return all[static_cast<size_t>(t.slot)] == Where::kCopy;
    return slot.param >= 0 && plan.params[static_cast<size_t>(slot.param)].role == Role::kWeight;
  };
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& s = plan.steps[i];
    const bool is_copy = !s.in.empty() && std::all_of(s.in.begin(), s.in.end(), is_of_weights);
    for (const PlanTensor& t : s.out)
      if (t.slot >= 0) all[static_cast<size_t>(t.slot)] = is_copy ? Where::kCopy : steps[i];
  }
  for (size_t i = 0; i < plan.slots.size(); ++i)
    if (const Slot& s = plan.slots[i]; s.is_workspace && s.first_step >= 0)
      all[i] = steps[static_cast<size_t>(s.first_step)];
  return all;
}

int64_t whole_lines(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Slots on the way of a weight's gradient to its sum, through exchanges and copies.
std::vector<bool> gradients_of(const Plan& plan) {
  std::vector<bool> is_gradient(plan.slots.size(), false);
  const auto slot_of = [&](const PlanTensor& t) -> const Slot* {
    return t.slot < 0 ? nullptr : &plan.slots[static_cast<size_t>(t.slot)];
  };
  for (size_t i = plan.steps.size(); i-- > 0;) {
    const Step& s = plan.steps[i];
    if (s.phase == Phase::kForward) break;
    bool is_on_the_way = false;
    for (const PlanTensor& t : s.out)
      if (const Slot* slot = slot_of(t)) {
        const bool moves = s.op->collective || s.flops == 0;
        is_on_the_way |=
            slot->kind != SlotKind::kArena || (moves && is_gradient[static_cast<size_t>(t.slot)]);
      }
    for (const PlanTensor& t : s.in)
      if (const Slot* slot = slot_of(t); slot && is_on_the_way && slot->kind == SlotKind::kArena)
        is_gradient[static_cast<size_t>(t.slot)] = true;
  }
  return is_gradient;
}

// Gradients of weights that wait for other ranks while other layers run stand under gradients, as
// copies of weights stand under weights: both are left out where copies are.
std::vector<int64_t> live_of(const Plan& plan, const Wheres& slots, Mask mask) {
  std::vector<int64_t> live(plan.steps.size(), 0);
  const bool leaves_out = (mask & bit(Where::kCopy)) == 0;
  const std::vector<bool> is_gradient = gradients_of(plan);
  const auto place = [&](int i) {
    const int layer = layer_of(plan.steps[static_cast<size_t>(i)].scope);
    return layer >= 0 ? cat(layer) : plan.steps[static_cast<size_t>(i)].scope;
  };
  for (size_t k = 0; k < plan.slots.size(); ++k) {
    const Slot& s = plan.slots[k];
    if (s.kind != SlotKind::kArena || (mask & bit(slots[k])) == 0) continue;
    const bool waits = leaves_out && is_gradient[k] && s.first_step >= 0;
    const std::string home = waits ? place(s.first_step) : "";
    for (int i = std::max(0, s.first_step); i <= s.last_step && i < static_cast<int>(live.size());
         ++i)
      if (!waits || place(i) == home) live[static_cast<size_t>(i)] += whole_lines(s.bytes);
  }
  return live;
}

struct At {
  int64_t live = 0;
  size_t phase = 0;
  Where where = Where::kLayers;
};
using Steps = std::map<std::string, At>;  // live bytes by place, op and its number there

// The middle layer of three is the second and the last but one, each under its own name.
Steps steps_of(const Plan& plan, const std::vector<int64_t>& live, int n_layers,
               bool from_the_end) {
  const Wheres wheres = wheres_of_steps(plan);
  std::map<std::string, int> count;
  Steps steps;
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& s = plan.steps[i];
    const int layer = layer_of(s.scope);
    const auto phase = static_cast<size_t>(s.phase);
    if (layer < 0) {
      if (from_the_end) continue;
      // Takes, of several of one op (sums over all weights), that where most lies.
      At& most = steps[cat(s.scope, " ", phase, " ", s.op->name, " ", static_cast<int>(wheres[i]))];
      most = {std::max(most.live, live[i]), phase, wheres[i]};
      continue;
    }
    const int index = from_the_end ? n_layers - 1 - layer : layer;
    if (index > 1) continue;  // the other direction has it
    const std::string key =
        cat(place_of(s.scope, cat(from_the_end ? "-" : "+", index)), " ", what_of(plan, s));
    steps[cat(key, " ", count[key]++)] = {live[i], phase};
  }
  return steps;
}

// Bytes that lie there when the forward part of all layers is done.
int64_t live_at_turn(const Plan& plan, const Wheres& slots) {
  int at = 0;
  for (size_t i = 0; i < plan.steps.size(); ++i)
    if (plan.steps[i].phase == Phase::kForward && layer_of(plan.steps[i].scope) >= 0)
      at = static_cast<int>(i);
  int64_t bytes = 0;
  for (size_t i = 0; i < plan.slots.size(); ++i) {
    const Slot& s = plan.slots[i];
    if (s.kind == SlotKind::kArena && slots[i] != Where::kCopy && s.first_step <= at &&
        s.last_step > at)
      bytes += whole_lines(s.bytes);
  }
  return bytes;
}

// Bytes that the forward part of layer 1 hands to that of layer 2.
int64_t boundary_bytes(const Plan& plan, const Wheres& slots) {
  std::vector<bool> is_mine(plan.slots.size(), false);
  int64_t bytes = 0;
  for (const Step& s : plan.steps) {
    if (s.phase != Phase::kForward) continue;
    const int layer = layer_of(s.scope);
    for (const PlanTensor& t : s.in) {
      const auto slot = static_cast<size_t>(std::max(t.slot, 0));
      if (layer != 2 || t.slot < 0 || !is_mine[slot]) continue;
      is_mine[slot] = false, bytes += whole_lines(plan.slots[slot].bytes);
    }
    for (const PlanTensor& t : s.out) {
      if (t.slot < 0) continue;
      const auto slot = static_cast<size_t>(t.slot);
      is_mine[slot] =
          layer == 1 && plan.slots[slot].kind == SlotKind::kArena && slots[slot] != Where::kCopy;
    }
  }
  return bytes;
}

// A step in both plans: live bytes in the shallower, and what a layer more adds.
struct Pair {
  int64_t live = 0, slope = 0;
  Where where = Where::kLayers;
};

// Whether what a layer's backward part begins ends in the next one's, or in that behind it where
// the next has fewer gradients.
bool joins_in_background(const Plan& plan) {
  return std::any_of(plan.steps.begin(), plan.steps.end(), [](const Step& s) {
    return s.starts >= 0 && layer_of(s.scope) >= 0 && s.in[0].type.bytes() > s.out[0].type.bytes();
  });
}

Result<std::vector<Pair>> pairs_of(const Plan& few, const Plan& more, int n_few, Mask mask) {
  if (n_few < 5 && joins_in_background(few))
    return unsupported(cat("of ", n_few,
                           " layers none is steady: gradients of one are joined while "
                           "the next two run"));
  const std::vector<int64_t> live[] = {live_of(few, wheres_of_slots(few), mask),
                                       live_of(more, wheres_of_slots(more), mask)};
  std::vector<Pair> pairs;
  // For each phase, the most at steps of which both plans have the like, and at others.
  int64_t both[3] = {}, alone[3] = {};
  std::string which[3];
  const auto compare = [&](const Steps& mine, const Steps& other, bool is_few) {
    for (const auto& [name, at] : mine) {
      const auto like = other.find(name);
      if (like == other.end()) {
        if (at.live > alone[at.phase]) alone[at.phase] = at.live, which[at.phase] = name;
        continue;
      }
      both[at.phase] = std::max(both[at.phase], at.live);
      if (is_few) pairs.push_back({at.live, like->second.live - at.live, at.where});
    }
  };
  for (const bool from_the_end : {false, true}) {
    const Steps a = steps_of(few, live[0], n_few, from_the_end),
                b = steps_of(more, live[1], n_few + 1, from_the_end);
    compare(a, b, true), compare(b, a, false);
  }
  // Small steps of the update may be fused otherwise in a deeper model, but what is not in both
  // must not be where the most lies. Forward and backward all must be in both.
  for (size_t phase = 0; phase < 3; ++phase)
    if (alone[phase] > (phase < 2 ? 0 : both[phase]))
      return unsupported(cat("the plans of ", n_few, " and of ", n_few + 1,
                             " layers differ: only one has the step ", which[phase], ", with ",
                             alone[phase], " bytes"));
  return pairs;
}

}  // namespace

std::vector<int64_t> live_bytes(const Plan& plan, bool with_all) {
  return live_of(plan, wheres_of_slots(plan), with_all ? kAll : kNoCopies);
}

Result<int64_t> composed_peak(const Plan& few, const Plan& more, int64_t n_layers, int n_few) {
  if (n_layers < n_few)
    return invalid_argument(cat("a timeline of ", n_layers,
                                " layers is planned whole: it is composed from ", n_few, " on"));
  int64_t peak = 0;
  for (const Pair& p : TEGULA_TRY(pairs_of(few, more, n_few, kAll)))
    peak = std::max(peak, p.live + (n_layers - n_few) * p.slope);
  return peak;
}

Result<LayerLive> layer_live(const Plan& few, const Plan& more, int n_few) {
  LayerLive l;
  const Wheres slots = wheres_of_slots(few);
  l.kept =
      static_cast<double>(live_at_turn(more, wheres_of_slots(more)) - live_at_turn(few, slots));
  l.boundary = static_cast<double>(boundary_bytes(few, slots));
  for (const bool first : {false, true})
    for (const bool last : {false, true}) {
      const Mask mask = mask_of(first, last);
      for (const Pair& p : TEGULA_TRY(pairs_of(few, more, n_few, mask)))
        if ((mask & bit(p.where)) != 0)
          l.steps[first][last].push_back(
              {static_cast<double>(p.live - n_few * p.slope), static_cast<double>(p.slope)});
    }
  return l;
}

double LayerLive::working(int64_t n, bool has_first, bool has_last) const {
  double most = 0;
  for (const At& at : steps[has_first][has_last])
    most = std::max(most, at.bytes + static_cast<double>(n) * (at.slope - kept));
  return most;
}

}  // namespace tegula::planner
