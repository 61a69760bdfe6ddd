#include "tegula/planner/timeline.h"

#include <algorithm>
#include <charconv>
#include <map>

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

// What a step is, but for its layer: its types, and the parameters that it reads, without digits,
// so that updates of two weights are not taken for one another in whatever order they run.
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

struct At {
  int64_t live = 0;
  size_t phase = 0;
};
using Steps = std::map<std::string, At>;  // live bytes by place, op and its number there

// The middle layer of three is the second and the last but one, each under its own name.
Steps steps_of(const Plan& plan, int n_layers, bool from_the_end) {
  const std::vector<int64_t> live = live_bytes(plan);
  std::map<std::string, int> count;
  Steps steps;
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& s = plan.steps[i];
    const int layer = layer_of(s.scope);
    if (layer < 0) {
      if (from_the_end) continue;
      // Of several of one op, as sums over all weights, however they are fused: where most lies.
      At& most = steps[cat(s.scope, " ", static_cast<int>(s.phase), " ", s.op->name)];
      most = {std::max(most.live, live[i]), static_cast<size_t>(s.phase)};
      continue;
    }
    const int index = from_the_end ? n_layers - 1 - layer : layer;
    if (index > 1) continue;  // the other direction has it
    const std::string key =
        cat(place_of(s.scope, cat(from_the_end ? "-" : "+", index)), " ", what_of(plan, s));
    steps[cat(key, " ", count[key]++)] = {live[i], static_cast<size_t>(s.phase)};
  }
  return steps;
}

}  // namespace

std::vector<int64_t> live_bytes(const Plan& plan) {
  std::vector<int64_t> live(plan.steps.size(), 0);
  for (const Slot& s : plan.slots) {
    if (s.kind != SlotKind::kArena) continue;
    for (int i = std::max(0, s.first_step); i <= s.last_step && i < static_cast<int>(live.size());
         ++i)
      live[static_cast<size_t>(i)] += (s.bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  return live;
}

Result<int64_t> composed_peak(const Plan& few, const Plan& more, int64_t n_layers, int n_few) {
  if (n_layers < n_few)
    return invalid_argument(cat("a timeline of ", n_layers,
                                " layers is planned whole: it is composed from ", n_few, " on"));
  // Of each phase, the most at steps of which both plans have the like, and at others.
  int64_t peak = 0, both[3] = {}, alone[3] = {};
  std::string which[3];
  const auto note = [&](const std::string& name, const At& at) {
    if (at.live > alone[at.phase]) alone[at.phase] = at.live, which[at.phase] = name;
  };
  for (const Plan* plan : {&few, &more})
    for (const bool from_the_end : {false, true}) {
      const Steps a = steps_of(few, n_few, from_the_end),
                  b = steps_of(more, n_few + 1, from_the_end);
      const Steps &mine = plan == &few ? a : b, &other = plan == &few ? b : a;
      for (const auto& [name, at] : mine) {
        const auto like = other.find(name);
        if (like == other.end()) {
          note(name, at);
          continue;
        }
        both[at.phase] = std::max(both[at.phase], at.live);
        if (plan == &few)
          peak = std::max(peak, at.live + (n_layers - n_few) * (like->second.live - at.live));
      }
    }
  // Small steps of the update may be fused otherwise in a deeper model, but what is not in both
  // must not be where the most lies. Forward and backward all must be in both.
  for (size_t phase = 0; phase < 3; ++phase)
    if (alone[phase] > (phase < 2 ? 0 : both[phase]))
      return unsupported(cat("the plans of ", n_few, " and of ", n_few + 1,
                             " layers differ: only one has the step ", which[phase], ", with ",
                             alone[phase], " bytes"));
  return peak;
}

}  // namespace tegula::planner
