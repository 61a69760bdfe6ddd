#include "tegula/comm/watch.h"

#include <cstring>

namespace tegula {

std::string ranks_of(const Segment& segment, int64_t process) {
  const int64_t n = segment.n_own(), first = process * n;
  return n == 1 ? cat("rank ", first) : cat("ranks ", first, " to ", first + n - 1);
}

std::string doing(const Segment& segment, int64_t rank) {
  const RankState& s = segment.state(rank);
  const uint64_t calls = __atomic_load_n(&s.calls, __ATOMIC_ACQUIRE);
  if (calls == 0) return "before its first call";
  const bool is_waiting = __atomic_load_n(&s.is_waiting, __ATOMIC_ACQUIRE) != 0;
  return cat(is_waiting ? "waiting in call " : "after it began call ", calls, ", ", s.call);
}

std::optional<Error> deadlock(const Segment& segment, uint32_t beats,
                              bool (*has_ended)(const void* context, int64_t process),
                              const void* context) {
  const int64_t n = segment.n_ranks();
  for (int64_t r = 0; r < n; ++r) {
    const RankState& s = segment.state(r);
    if (has_ended(context, r / segment.n_own())) continue;
    if (__atomic_load_n(&s.is_waiting, __ATOMIC_ACQUIRE) == 0 ||
        __atomic_load_n(&s.beats, __ATOMIC_RELAXED) < beats)
      return std::nullopt;
  }
  const RankState& first = segment.state(0);
  int64_t other = 1;
  while (other < n - 1 && std::strcmp(segment.state(other).call, first.call) == 0 &&
         segment.state(other).calls == first.calls)
    ++other;
  return internal_error(cat("all ranks wait for one another: rank 0 ", doing(segment, 0), ", rank ",
                            other, " ", doing(segment, other),
                            ": they do not run the same plan; please report it"));
}

}  // namespace tegula
