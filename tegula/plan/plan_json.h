// Plans as JSON text, and back: the same steps, slots, tile programs and regions, so that a session
// of a loaded plan gives the same bits. Source locations and the module are not kept.
//
//   {"format": "tegula.plan", "version": 3, "sha256": "…", "plan": {…}}
//
// Ops and kernels are found by name. plan_from_json refuses, and says which: text that is not a
// plan; an altered or truncated one (the hash is of the plan's compact text); another version; an
// op or kernel that this build lacks; whatever verify_plan finds, by the plan's own target. It
// never trusts a number: sizes are bounded before they are used.
#pragma once

#include <string>
#include <string_view>

#include "tegula/plan/plan.h"

namespace tegula {

inline constexpr int64_t kPlanVersion = 4;

std::string plan_to_json(const Plan& plan);
// `what` names the text in errors: a path, usually.
Result<Plan> plan_from_json(std::string_view text, std::string_view what);

}  // namespace tegula
