// Shared by the files of verify_plan. Internal to plan/.
#pragma once

#include <optional>
#include <string>

#include "tegula/plan/plan.h"

namespace tegula::verify {

struct Bytes {  // [begin, end)
  int64_t begin = 0, end = 0;
  bool is_empty() const { return begin >= end; }
  bool is_same(const Bytes& b) const { return begin == b.begin && end == b.end; }
  bool meets(const Bytes& b) const { return begin < b.end && b.begin < end; }
};

Error broken(const Plan& plan, std::string_view rule, const std::string& what);
std::string step_name(const Plan& plan, size_t i);  // "step 7 (add)"

// The bytes of its slot that a tensor may touch at any extents; none: they overflow.
std::optional<Bytes> reach(const PlanTensor& t);

// Those it touches, in their order: runs without gaps. There must be at most kMostRuns of them.
inline constexpr int64_t kMostRuns = 1 << 20;
std::vector<Bytes> runs_of(const PlanTensor& t);
// How many there are, without listing them; more than kMostRuns count as kMostRuns + 1.
int64_t count_runs(const PlanTensor& t);

// M7: op, kernel, types and workspace of one step.
Status check_launch(const Plan& plan, size_t step);
// M11, but for what lies in memory.
Status check_background(const Plan& plan, bool is_region);
// M10, and verify_plan of the regions.
Status check_regions(const Plan& plan, size_t step);
// M9: t is a view of bytes that `layout` wrote; t_at and layout_at are their addresses in one
// space.
Status check_strides(const Plan& plan, const PlanTensor& t, int64_t t_at, const PlanTensor& layout,
                     int64_t layout_at, const std::string& who);

Status check_plan(const Plan& plan, bool is_region);

}  // namespace tegula::verify
