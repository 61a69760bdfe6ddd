// A count as a number that prices and shares are made of.
#pragma once

#include <cstdint>

namespace tegula::planner {

inline double real(int64_t n) { return static_cast<double>(n); }

}  // namespace tegula::planner
