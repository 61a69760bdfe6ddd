// Counts what a stretch of code takes from the system: malloc and its kin (so operator new too) and
// mmap, on every thread of the process.
#pragma once

#include <cstdint>

namespace tegula::test {

struct Allocations {
  int64_t count = 0;
  int64_t bytes = 0;
};

// Since the process began.
Allocations allocations();

}  // namespace tegula::test
