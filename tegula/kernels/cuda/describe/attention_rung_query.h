// The calls that the rungs below the Hopper kernel take: bf16, causal or not, any strides of rows.
#pragma once

#include "tegula/kernels/cuda/attention_rungs.h"
#include "tegula/kernels/cuda/describe/attention_query.h"

namespace tegula::cuda {

inline bool rung_supports(const KernelQuery& q, bool is_naive) {
  const auto c = kernel::parse_attention(*q.attrs, q.in, false);
  if (!c.ok() || !check_plain(*c).ok() || c->left >= 0 || c->right >= 0) return false;
  for (const TensorRef* t : {&q.in[0], &q.in[1], &q.in[2], &q.out[0]})
    if (t->dtype != DType::kBF16 || (t->stride[3] != 1 && t->shape[3] > 1)) return false;
  return q.out[1].is_contiguous() && check_attention_rung(shape_of(*c), is_naive).ok();
}

}  // namespace tegula::cuda
