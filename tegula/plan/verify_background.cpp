
#include "tegula/base/algorithm.h"
#include "tegula/ir/opdef.h"
#include "tegula/plan/verify_parts.h"

namespace tegula::verify {

namespace {

bool are_alike(const std::vector<PlanTensor>& x, const std::vector<PlanTensor>& y) {
  return std::equal(x.begin(), x.end(), y.begin(), y.end(), [](const auto& a, const auto& b) {
    return a.slot == b.slot && a.byte_offset == b.byte_offset && a.value == b.value &&
           a.holds == b.holds && a.type == b.type &&
           std::equal(a.stride, a.stride + a.type.shape.rank(), b.stride);
  });
}

bool is_same_work(const Step& a, const Step& b) {
  return a.op == b.op && a.kernel == b.kernel && a.attrs == b.attrs && are_alike(a.in, b.in) &&
         are_alike(a.out, b.out) && a.workspace == b.workspace;
}

}  // namespace

Status check_background(const Plan& plan, bool is_region) {
  constexpr int kEnded = -2;
  std::vector<int> starts(static_cast<size_t>(plan.n_background()), -1);
  size_t n_ended = 0;
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& s = plan.steps[i];
    if (s.starts < 0 && s.ends < 0) continue;
    const auto refuse = [&](std::string_view why) {
      return broken(plan, "M11 background", cat(step_name(plan, i), ": ", why));
    };
    const auto number = static_cast<size_t>(std::max(s.starts, s.ends));
    if (is_region || !s.op->collective || !s.kernel || !s.kernel->moves ||
        (s.starts >= 0 && s.ends >= 0))
      return refuse("cannot run in the background");
    if (number >= starts.size()) return refuse(cat("there is no work ", number));
    int& start = starts[number];
    if (s.starts >= 0) {
      if (start != -1) return refuse(cat("starts work ", number, " a second time"));
      start = static_cast<int>(i);
      continue;
    }
    if (start < 0) return refuse(cat("ends work ", number, ", which is not running"));
    if (!is_same_work(plan.steps[static_cast<size_t>(start)], s))
      return refuse(cat("ends work ", number,
                        ", which is another: ", step_name(plan, static_cast<size_t>(start))));
    start = kEnded;
    ++n_ended;
  }
  if (n_ended == starts.size()) return {};
  return broken(plan, "M11 background",
                cat(starts.size(), " works are started, ", n_ended, " are ended"));
}

}  // namespace tegula::verify
