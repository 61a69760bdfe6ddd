// A call of the attention backward to the Hopper kernels, those of f32 and those of 16 bits, and to
// those by mma.sync.
#pragma once

#include "tegula/kernels/cuda/attention_bwd.h"
#include "tegula/kernels/cuda/describe/attention_padded.h"

namespace tegula::cuda {

using ChooseBwd = Result<AttentionBwdVariant> (*)(const AttentionShape&, bool is_ordered,
                                                  const Target&);

inline Result<AttentionBwdVariant> choose_bwd_mma(const AttentionShape& s, bool is_ordered,
                                                  const Target& target) {
  return choose_attention_bwd_mma(s, is_ordered, static_cast<int>(target.smem_bytes));
}
inline Result<AttentionBwdVariant> choose_bwd_sm90(const AttentionShape& s, bool is_ordered,
                                                   const Target&) {
  return choose_attention_bwd(s, is_ordered);
}

template <ChooseBwd kChoose, bool kIsOrdered, bool kOfF32>
Status check_bwd(const KernelQuery& q) {
  TEGULA_TRY(kChoose == choose_bwd_mma ? check_device(q, 80) : check_device(q, 90, 90));
  const auto c = TEGULA_TRY(kernel::parse_attention(*q.attrs, q.in, true));
  TEGULA_TRY(check_whole(c));
  TEGULA_TRY(check_readable(
      c, kOfF32,
      {&q.in[0], &q.in[1], &q.in[2], &q.in[3], &q.in[5], &q.out[0], &q.out[1], &q.out[2]}));
  if (c.bias != nullptr && (q.out[3].dtype != DType::kF32 || !q.out[3].is_contiguous()))
    return unsupported("the gradient of a bias comes in contiguous f32: keep the bias in f32");
  if (kIsOrdered && c.bias != nullptr && !c.owns_bias())
    return unsupported(
        "what a bias has once for many scores is summed by atomics: give each score its own");
  if (!q.in[4].is_contiguous() || (c.dlse != nullptr && !c.dlse->is_contiguous()))
    return unsupported("the log-sum-exp and its gradient must be contiguous");
  TEGULA_TRY(check_attention(shape_of(c), c.scale));
  return check_smem(q, TEGULA_TRY(kChoose(shape_of(c), kIsOrdered, *q.target)).smem_bytes());
}

inline int64_t n_sequences(const kernel::AttentionCall& c) {
  return c.cu_q == nullptr ? 0 : c.cu_q->shape[0] - 1;
}

template <ChooseBwd kChoose, bool kIsOrdered>
int64_t bwd_workspace_bytes(const KernelQuery& q) {
  const auto c = kernel::parse_attention(*q.attrs, q.in, true);
  if (!c.ok()) return 0;
  const auto v = kChoose(shape_of(*c), kIsOrdered, *q.target);
  return v.ok() ? attention_bwd_workspace_bytes(*v, shape_of(*c), n_sequences(*c)) : 0;
}

// `def` with what follows from the variants that are chosen.
template <ChooseBwd kChoose, bool kIsOrdered, bool kOfF32 = false>
constexpr KernelDef bwd_kernel(KernelDef def) {
  def.op = "attention_bwd";
  def.device = DeviceKind::kCuda;
  def.repeats_bits = kIsOrdered;
  def.writes_strides = true;
  def.check = check_padded<kBackwardOperands, check_bwd<kChoose, kIsOrdered, kOfF32>>;
  def.supports = passes<check_padded<kBackwardOperands, check_bwd<kChoose, kIsOrdered, kOfF32>>>;
  def.workspace_bytes =
      padded_workspace_bytes<kBackwardOperands, bwd_workspace_bytes<kChoose, kIsOrdered>>;
  return def;
}

}  // namespace tegula::cuda
