#include "tegula/runtime/memory_watch.h"

#include <cstring>

#include "tegula/base/algorithm.h"
#include "tegula/base/round.h"
#include "tegula/ir/opdef.h"
#include "tegula/plan/memory.h"
#include "tegula/plan/regions.h"

namespace tegula {

namespace {
// Bytes behind a workspace of so many that are to stay as they are: as many, within bounds.
constexpr int64_t tail_bytes(int64_t workspace) {
  return std::clamp<int64_t>(round_up(workspace, kAlignment), 1 << 12, 1 << 20);
}

int64_t workspace_of(const Plan& plan, const Step& step) {
  return step.workspace < 0 ? 0 : plan.slots[static_cast<size_t>(step.workspace)].bytes;
}

int64_t largest_workspace(const Plan& plan) {
  int64_t bytes = 0;
  for (const Step& s : plan.steps) {
    if (s.kernel) bytes = std::max(bytes, workspace_of(plan, s));
    for (const auto& region : s.regions) bytes = std::max(bytes, largest_workspace(*region));
  }
  return bytes;
}

// One past the last of n bytes that is not `value`.
int64_t end_of_changes(const void* at, int64_t n, uint8_t value) {
  const auto* p = static_cast<const uint8_t*>(at);
  // All alike, if each is the next one's like: the fast answer to the usual question.
  if (n > 0 && p[0] == value && std::memcmp(p, p + 1, static_cast<size_t>(n - 1)) == 0) return 0;
  while (n > 0 && p[n - 1] == value) --n;
  return n;
}
}  // namespace

Result<std::unique_ptr<MemoryWatch>> MemoryWatch::create(Region& arena,
                                                         std::span<const Plan* const> plans,
                                                         Workspaces workspaces) {
  int64_t planned = 0, workspace = 0;
  for (const Plan* p : plans) {
    planned = std::max(planned, p->arena_bytes);
    workspace = std::max(workspace, largest_workspace(*p));
  }
  TEGULA_CHECK(planned <= arena.bytes(), "an arena of ", arena.bytes(), " for plans of ", planned);
  std::unique_ptr<MemoryWatch> w(new MemoryWatch(arena, planned));
  if (workspaces == Workspaces::kApart && workspace > 0)
    w->apart_ =
        TEGULA_TRY(Region::between_guards(*arena.account(), workspace + tail_bytes(workspace)));
  return w;
}

void MemoryWatch::begin(uint8_t value, ThreadPool* pool) {
  value_ = value;
  arena_.poison(value, pool);
}

Status MemoryWatch::end() {
  written_ = std::max(written_, arena_.touched(value_));
  if (error_) return *error_;
  return {};
}

int64_t MemoryWatch::claimed_bytes() const { return round_up(claimed_, kAlignment); }

int64_t MemoryWatch::offset_of(const void* p) const {
  const auto at = reinterpret_cast<uintptr_t>(p), base = reinterpret_cast<uintptr_t>(arena_.data());
  const bool is_inside = p && at >= base && at < base + static_cast<uintptr_t>(arena_.bytes());
  return is_inside ? static_cast<int64_t>(at - base) : -1;
}

void* MemoryWatch::open(void* workspace, int64_t bytes) {
  if (!workspace || !apart_.data()) return workspace;
  std::memset(apart_.data(), value_, static_cast<size_t>(bytes + tail_bytes(bytes)));
  return apart_.data();
}

Status MemoryWatch::close(const Done& done) {
  const int64_t bytes = workspace_of(*done.plan, done.plan->steps[done.step]);
  claim_results(done);
  if (auto st = check_workspace(done, bytes); !st.ok()) return st;
  return check_spare(done);
}

void MemoryWatch::claim_results(const Done& done) {
  for (const TensorRef& t : done.out) {
    const int64_t at = offset_of(t.data);
    if (at < 0 || t.numel() == 0) continue;
    int64_t last = 0;
    for (int d = 0; d < t.rank; ++d) last += std::max<int64_t>(0, t.stride[d]) * (t.shape[d] - 1);
    claimed_ = std::max(claimed_, at + (last + 1) * size_bytes(t.dtype));
  }
}

Status MemoryWatch::check_workspace(const Done& done, int64_t bytes) {
  if (!done.workspace) return {};
  const Step& step = done.plan->steps[done.step];
  // Regions' sessions claim theirs, behind the step's own line.
  const int64_t claimed = step.kernel ? done.claimed_bytes : kRegionArena;
  const int64_t at = offset_of(done.workspace);
  if (at >= 0) claimed_ = std::max(claimed_, at + claimed);
  if (claimed > bytes)
    return blame(done, cat("lays out ", claimed, " bytes of a workspace of ", bytes));
  if (!step.kernel || !done.is_apart || !apart_.data()) return {};
  const auto* tail = static_cast<const uint8_t*>(apart_.data()) + bytes;
  if (const int64_t n = end_of_changes(tail, tail_bytes(bytes), value_); n > 0)
    return blame(done, cat("wrote up to ", n, " bytes behind its workspace of ", bytes));
  const int64_t n = end_of_changes(apart_.data(), bytes, value_);
  if (n > claimed)
    return blame(done, cat("wrote ", n, " bytes of its workspace and has claimed ", claimed));
  if (at >= 0 && n > 0) written_ = std::max(written_, at + n);
  return {};
}

Status MemoryWatch::check_spare(const Done& done) {
  const int64_t spare = arena_.bytes() - planned_;
  if (spare == 0) return {};
  const int64_t n =
      end_of_changes(static_cast<const uint8_t*>(arena_.data()) + planned_, spare, value_);
  return n == 0 ? Status{}
                : blame(done, cat("wrote up to ", n, " bytes behind the arena of ", planned_));
}

Error MemoryWatch::blame(const Done& done, std::string what) {
  const Step& step = done.plan->steps[done.step];
  const std::string_view who = step.kernel ? step.kernel->name : step.op->name;
  Error e = internal_error(
      cat(step.kernel ? "kernel " : "op ", who, " (step ", done.step, " of ", done.plan->name, ") ",
          what, " bytes: this is a fault of Tegula, please report it"),
      step.loc);
  if (!error_) error_ = e;
  return e;
}

}  // namespace tegula
