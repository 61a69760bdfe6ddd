// Calls whose tensors lie where 16-byte copies cannot reach them (a head_dim of 100 without gaps,
// a transposed head_dim): what is read is first copied into the workspace, rows padded to 16 bytes,
// and what is written is copied out of it.
#pragma once

#include "tegula/kernels/cuda/describe/attention_query.h"

namespace tegula::cuda {

// The tensors [b, s, h, d] of an op by number, -1 after the last.
struct PaddedOperands {
  int in[6], out[4];
};
inline constexpr PaddedOperands kForwardOperands{{0, 1, 2, -1}, {0, -1}};
inline constexpr PaddedOperands kBackwardOperands{{0, 1, 2, 3, 5, -1}, {0, 1, 2, -1}};

// Fixed in the plan: where a tensor lies in memory is not looked at.
bool needs_padding(TensorRef t);

// Whether any needs it, so that most calls need no PaddedCall.
bool has_padded(const PaddedOperands& which, std::span<const TensorRef> in,
                std::span<const TensorRef> out);

// Operands and results of a call, those padded that need it, with their places in a workspace.
struct PaddedCall {
  std::vector<TensorRef> in, out;
  int64_t workspace_bytes = 0;
};
// Places begin at `workspace`; null at plan time.
PaddedCall padded(const PaddedOperands& which, std::span<const TensorRef> in,
                  std::span<const TensorRef> out, char* workspace);

template <const PaddedOperands& kWhich, Status (*kCheck)(const KernelQuery&)>
Status check_padded(const KernelQuery& q) {
  if (!has_padded(kWhich, q.in, q.out)) return kCheck(q);
  const PaddedCall p = padded(kWhich, q.in, q.out, nullptr);
  KernelQuery inner = q;
  inner.in = p.in, inner.out = p.out;
  return kCheck(inner);
}

template <const PaddedOperands& kWhich, int64_t (*kBytes)(const KernelQuery&)>
int64_t padded_workspace_bytes(const KernelQuery& q) {
  if (!has_padded(kWhich, q.in, q.out)) return kBytes == nullptr ? 0 : kBytes(q);
  const PaddedCall p = padded(kWhich, q.in, q.out, nullptr);
  KernelQuery inner = q;
  inner.in = p.in, inner.out = p.out;
  return p.workspace_bytes + (kBytes == nullptr ? 0 : kBytes(inner));
}

}  // namespace tegula::cuda
