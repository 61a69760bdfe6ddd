// Long sums of f32, in every kernel that adds up a row or a column one element after another: what
// such a chain has summed goes into a total in f64 after so many elements, and it begins anew at 0.
// So the error of a sum does not grow with its length: at most about 17 roundings of an average
// partial sum, 1e-6 of the sum of magnitudes.
#pragma once

#include <cstdint>

namespace tegula {

inline constexpr int64_t kSumPart = 32;
// A column's sum, which goes on over blocks of rows, has parts only beyond so many rows.
inline constexpr int64_t kLongColumn = int64_t{1} << 13;

}  // namespace tegula
