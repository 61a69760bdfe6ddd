// Reads memory in whole vectors and does next to nothing with it: what a cache can deliver.
#pragma once

#include <cstdint>

namespace tegula::kernel {

struct ReadBurst {
  const float* data = nullptr;
  int64_t n = 0;         // a multiple of 128, or the rest stays unread
  float* sum = nullptr;  // += all that was read, in any order
};

}  // namespace tegula::kernel
