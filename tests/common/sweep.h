// Random searches: a few cases in ctest, by command as long as they are told.
//
//   TEGULA_SWEEP_SECONDS=1200  goes on for so long instead
//   TEGULA_SWEEP=10000         so many cases instead
//   TEGULA_SWEEP_FROM=N        begins at case N: each case is its number's own
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "tegula/base/result.h"

namespace tegula::test {

class Sweep {
 public:
  explicit Sweep(uint64_t quick_cases) : quick_(quick_cases) {
    if (const char* text = std::getenv("TEGULA_SWEEP_SECONDS")) seconds_ = std::atof(text);
    if (const char* text = std::getenv("TEGULA_SWEEP")) quick_ = std::strtoull(text, nullptr, 10);
    if (const char* text = std::getenv("TEGULA_SWEEP_FROM"))
      first_ = at_ = std::strtoull(text, nullptr, 10);
  }
  ~Sweep() {
    if (seconds_ > 0)
      std::printf("cases %llu to %llu\n", static_cast<unsigned long long>(first_),
                  static_cast<unsigned long long>(at_));
  }
  Sweep(const Sweep&) = delete;
  Sweep& operator=(const Sweep&) = delete;

  // The next case's number; false: that was all.
  bool next(uint64_t& number) {
    const double passed = std::chrono::duration<double>(Clock::now() - start_).count();
    if (seconds_ > 0 ? passed > seconds_ : at_ - first_ >= quick_) return false;
    number = at_++;
    return true;
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
  double seconds_ = 0;
  uint64_t quick_, first_ = 0, at_ = 0;
};

// Checks case after case. check(number) is a Result<std::string>, "" where all is well; anything
// else is a failure, of which there are 20 at most.
template <class Check>
void sweep(uint64_t quick_cases, Check&& check) {
  Sweep cases(quick_cases);
  int n_failed = 0;
  for (uint64_t number = 0; n_failed < 20 && cases.next(number);) {
    const Result<std::string> checked = check(number);
    const std::string why = checked.ok() ? *checked : checked.error().message;
    if (why.empty()) continue;
    ADD_FAILURE() << "case " << number << ": " << why;
    ++n_failed;
  }
}

}  // namespace tegula::test
