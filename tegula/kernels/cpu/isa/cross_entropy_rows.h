// Cross-entropy's work on a token's logits, however they are formed.
#pragma once

#include "tegula/base/algorithm.h"
#include "tegula/kernels/cpu/common/cross_entropy.h"
#include "tegula/kernels/cpu/isa/row_io.h"

namespace tegula::kernel::TEGULA_ISA_NS {

inline constexpr float kInf = __builtin_inff();

TEGULA_VEC float first_lane(Vf v) {
  float t[kLanes];
  store(t, v);
  return t[0];
}
// No shift where there is nothing to shift by.
TEGULA_VEC float finite(float x) { return x - x == 0 ? x : 0; }

TEGULA_VEC int cut(int64_t most, int64_t left) { return static_cast<int>(std::min(most, left)); }

// A block of logits joins the running maximum m and the sum l of exp(logit - m).
static inline void add_logits(const float* row, int64_t cols, float& m, float& l) {
  Row16 top = row16(-kInf), sum = row16(0);
  for_16(cols, [&](int64_t e, int64_t k) { top = max(top, load16_n(row + e, k, -kInf)); });
  const float block_top = reduce_max(top);
  const float next = m > block_top ? m : block_top;
  for_16(cols, [&](int64_t e, int64_t k) {
    const Row16 x = load16_n(row + e, k, -kInf);
    sum = sum + exp(x - row16(finite(next)));
  });
  l = l * first_lane(exp(set1(m - finite(next)))) + reduce_add(sum);
  m = next;
}
static inline float log_sum(float m, float l) { return first_lane(log(set1(l))) + finite(m); }

}  // namespace tegula::kernel::TEGULA_ISA_NS
