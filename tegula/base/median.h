#pragma once

#include <vector>

#include "tegula/base/algorithm.h"

namespace tegula {

// The middle one of some, of two the larger.
inline double median(std::vector<double> v) {
  const auto middle = v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2);
  std::nth_element(v.begin(), middle, v.end());
  return *middle;
}

}  // namespace tegula
