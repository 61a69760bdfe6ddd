// Several calls of a kernel as one launch: what host and device both know.
#pragma once

namespace tegula::cuda {

// How many calls of so many bytes find room in the 4 KiB that a launch may be passed.
constexpr int most_joined(int params_bytes) {
  const int n = 4000 / (params_bytes + 8);
  return n < 2 ? 2 : n > 64 ? 64 : n;
}

}  // namespace tegula::cuda
