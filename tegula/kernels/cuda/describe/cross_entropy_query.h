// Cross-entropies as the CUDA kernels take them: logits are formed in the workspace, in the
// operands' bf16 or f16, rows padded to 16 bytes, and turned into their gradient there.
#pragma once

#include "tegula/base/round.h"
#include "tegula/kernels/cpu/common/cross_entropy.h"
#include "tegula/kernels/cuda/describe/check.h"

namespace tegula::cuda {

// The part that the op computes: lse and picked, gradients, or both.
enum class CrossEntropyPart : uint8_t { kForward, kBackward, kGrads };

// Forward: tokens at a time, at most, whose logits are there at once.
inline constexpr int64_t kForwardLogits = int64_t{1} << 26;

// With gradients: tokens at a time. Their parts of dW are added up in f32.
inline constexpr int64_t kGradientTokens = 16384;

struct CrossEntropyShape {
  int64_t n = 0, v = 0, d = 0, row = 0;  // row: elements between rows of logits
  int64_t chunk = 0;                     // tokens at a time
  bool has_parts = false;                // of dW, one a chunk
  // Logits, then the sum of dW's parts, then a part.
  int64_t logits_bytes() const { return round_up(2 * row * chunk, int64_t{256}); }
  int64_t part_bytes() const { return has_parts ? round_up(4 * v * d, int64_t{256}) : 0; }
  int64_t workspace_bytes() const { return logits_bytes() + 2 * part_bytes(); }
};

inline CrossEntropyShape cross_entropy_shape(const KernelQuery& q, CrossEntropyPart part) {
  CrossEntropyShape s;
  const TensorRef &x = q.in[0], &w = q.in[1];
  s.d = x.shape[x.rank - 1], s.v = w.shape[0], s.n = s.d > 0 ? x.numel() / s.d : 0;
  s.row = round_up(s.v, 64);
  s.chunk = std::min(s.n, part == CrossEntropyPart::kForward
                              ? std::max<int64_t>(128, kForwardLogits / s.row / 128 * 128)
                              : kGradientTokens);
  s.has_parts = part != CrossEntropyPart::kForward && s.chunk < s.n;
  return s;
}

template <CrossEntropyPart kPart>
Status check_cross_entropy(const KernelQuery& q) {
  const TensorRef &x = q.in[0], &w = q.in[1];
  if (!is_narrow_float(x.dtype) || w.dtype != x.dtype)
    return unsupported("cross-entropy: logits are formed in bf16 or f16, of the same");
  if (q.attrs->flag("transposed")) return unsupported("cross-entropy: w must be [v, d]");
  if (x.rank < 1 || x.numel() == 0 || w.shape[0] == 0)
    return unsupported("cross-entropy: no tokens or columns");
  for (const TensorRef* t : {&q.in[0], &q.in[1], &q.in[2]})
    if (!t->is_contiguous()) return unsupported("cross-entropy: x, w and targets without gaps");
  if (q.in[2].dtype != DType::kI32 && q.in[2].dtype != DType::kI64)
    return unsupported("cross-entropy: targets of i32 or i64");
  for (const TensorRef& t : q.out)
    if (!t.is_contiguous()) return unsupported("cross-entropy: results without gaps");
  for (size_t i = 3; i < q.in.size(); ++i) {
    if (q.in[i].dtype != DType::kF32)
      return unsupported("cross-entropy: lse and cotangents of f32");
    kernel::Loops tokens;
    for (int d = 0; d < q.in[i].rank; ++d) {
      kernel::Factor f;
      f.extent = q.in[i].shape[d], f.stride[kernel::kA] = q.in[i].stride[d];
      tokens.add(f);
    }
    int64_t stride = 0;
    if (tokens.count > 1 && !tokens.is_linear(kernel::kA, &stride))
      return unsupported("cross-entropy: cotangents in steps of one size");
  }
  if (cross_entropy_shape(q, kPart).n >= int64_t{1} << 31)
    return unsupported("cross-entropy: 2^31 tokens");
  return {};
}

// The same head on Hopper, whose first product writes exponentials (matmul_sm90.cu). Behind the
// parts of dW, of a chunk's tokens: sums of tiles, x scaled, three numbers each, a flag.
struct ScaledHeadSizes {
  int64_t sums = 0, scaled_x = 0, numbers = 0;  // bytes; of `numbers`, one of the three
  explicit ScaledHeadSizes(const CrossEntropyShape& s)
      : sums(round_up(4 * n_sums(s) * s.chunk, int64_t{256})),
        scaled_x(round_up(2 * s.d * s.chunk, int64_t{256})),
        numbers(round_up(4 * s.chunk, int64_t{256})) {}
  // One for so many columns of a row, whatever the number of tokens: bits depend on it.
  static constexpr int kColumns = 256;
  static int64_t n_sums(const CrossEntropyShape& s) { return ceil_div(s.v, int64_t{kColumns}); }
  int64_t bytes() const { return sums + scaled_x + 3 * numbers + 256; }
};

inline Status check_scaled_head(const KernelQuery& q) {
  TEGULA_TRY(check_device(q, 90, 90));
  TEGULA_TRY(check_cross_entropy<CrossEntropyPart::kGrads>(q));
  const CrossEntropyShape s = cross_entropy_shape(q, CrossEntropyPart::kGrads);
  if (q.in[0].dtype != DType::kBF16)
    return unsupported("cross-entropy: exponentials need the range of bf16");
  if (s.d % 8 != 0) return unsupported("cross-entropy: rows of x in whole pieces of 16 bytes");
  return {};
}

inline int64_t scaled_head_workspace_bytes(const KernelQuery& q) {
  const CrossEntropyShape s = cross_entropy_shape(q, CrossEntropyPart::kGrads);
  return s.workspace_bytes() + ScaledHeadSizes(s).bytes();
}

template <CrossEntropyPart kPart>
int64_t cross_entropy_workspace_bytes(const KernelQuery& q) {
  return cross_entropy_shape(q, kPart).workspace_bytes();
}

}  // namespace tegula::cuda
