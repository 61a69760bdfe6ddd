// Seconds by the system's clocks.
#pragma once

#include <ctime>

namespace tegula {

inline double clock_seconds(clockid_t clock) {
  timespec t{};
  ::clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}
// The machine's steady clock, the same for all of its processes.
inline double steady_seconds() { return clock_seconds(CLOCK_MONOTONIC); }

// The time since it was made, by the steady clock.
class Stopwatch {
 public:
  double seconds() const { return steady_seconds() - begin_; }
  double ms() const { return 1e3 * seconds(); }

 private:
  double begin_ = steady_seconds();
};

}  // namespace tegula
