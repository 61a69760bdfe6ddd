// Gradients of attention from the host: on Hopper, and by mma.sync for GPUs without wgmma.
//
//   given o, lse and do of attention.h:  dq, dk, dv, like q, k, v; of a bias and of sinks if there
//   are any, in f32
// Operands, masks, scores and rounding as in attention.h; P and dS are rounded to 16 bits. dk, dv
// and the gradient of sinks have the same bits in every run; dq too if the variant is ordered or
// has a kernel for dq, else it is summed over key tiles in an order that is not fixed; the gradient
// of a bias too where that has the size of the scores. Rows without keys give gradients of 0, and
// NaN in what a row does not see does not reach it. Any head_dim up to 256: columns past it are
// read as zeros, by the copy engine. Of f32 tensors: as attention_f32.h says.
#pragma once

#include "tegula/kernels/cuda/attention_mma.h"

namespace tegula::cuda {

// The constants that are compiled in.
struct AttentionBwdVariant {
  int head_dim = 128;  // 64, 96, 128, 192 or 256
  bool is_causal = false;
  bool is_ordered = false;  // dq has the same bits in every run, for some time more
  bool is_f16 = false;
  AttentionFeatures features;
  bool is_f32 = false;       // attention_f32_bwd_sm90.cu
  bool is_mma = false;       // attention_bwd_mma.cu, and what it has:
  int mma_groups = 2;        // of 16 rows of a warp
  int mma_pairs = 4;         // of warps
  int mma_shares = 1;        // of columns: pairs that share keys
  int mma_queries = 64;      // of a tile
  int mma_keys = 32;         // of a tile of dq's own kernel
  bool mma_adds_dq = false;  // in memory; else dq has a kernel of its own

  // Two kernels with more registers to spare (attention_bwd_wide_sm90.cu).
  bool is_wide() const { return !is_f32 && !is_mma && (head_dim > 128 || features.is_heavy()); }
  // dq has a kernel of its own; else it is summed in memory.
  bool has_dq_kernel() const { return is_mma ? !mma_adds_dq : is_wide(); }
  // dq summed over the keys in their order (else in none).
  bool adds_in_order() const { return is_ordered && !has_dq_kernel(); }
  // A row may not see some keys.
  bool has_ranges() const;
  // Keys that a row does not see may reach it, and then it is made again.
  bool may_leak() const { return is_f32 || has_ranges(); }
  const char* source() const;
  // "bwd_d128_causal"
  std::string name() const;
  std::vector<std::string> defines() const;
  // The shared memory of the largest of its kernels.
  int smem_bytes() const;
};

struct AttentionBwdCall {
  AttentionShape shape;
  AttentionOperand q, k, v, o, d_o, dq, dk, dv;
  const float* lse = nullptr;
  const float* d_lse = nullptr;  // [b, hq, sq], or null
  float scale = 1;
  AttentionFeatureParams given{};  // what the features read
  // With a bias: its gradient, f32 [b|1, hq|1, sq|1, sk] in a row, zeroed by the caller; or null.
  // Dims that the bias has only once (a stride of 0 in `given`) are summed.
  float* d_bias = nullptr;
  float* d_sinks = nullptr;   // with sinks: [hq]
  void* workspace = nullptr;  // attention_bwd_workspace_bytes, aligned to 64, contents undefined
  Stream stream;
};

// The variant that serves a shape, or why there is none.
Result<AttentionBwdVariant> choose_attention_bwd(const AttentionShape& shape,
                                                 bool is_ordered = false);

// The same by mma.sync, of tiles that fit a block's shared memory: of bf16 and f16; strides as of
// attention_mma.h.
Result<AttentionBwdVariant> choose_attention_bwd_mma(const AttentionShape& shape,
                                                     bool is_ordered = false,
                                                     int most_smem_bytes = max_smem_bytes(80));

// n_sequences: of packed sequences.
int64_t attention_bwd_workspace_bytes(const AttentionBwdVariant& variant,
                                      const AttentionShape& shape, int64_t n_sequences = 0);

// The kernels of a variant in the current context.
class AttentionBwdKernel {
 public:
  static Result<AttentionBwdKernel> load(const AttentionBwdVariant& variant,
                                         const std::string& cubin);
  Status launch(const AttentionBwdCall& call) const;

 private:
  AttentionBwdKernel(const AttentionBwdVariant& variant, Module module)
      : variant_(variant), module_(std::move(module)) {}
  Status check(const AttentionBwdCall& call) const;
  Status launch_f32(const AttentionBwdCall& call, AttentionBwdParams p) const;
  Status launch_mma(const AttentionBwdCall& call, AttentionBwdParams p) const;
  AttentionBwdVariant variant_;
  Module module_;
  // attention_bwd_before; attention_bwd_sm90 and _after (not in order), or attention_bwd_kv and _q,
  // or attention_bwd_mma_kv and _after or _q; attention_bwd_repair; attention_bwd_sinks;
  // attention_split.
  FunctionHandle before_ = nullptr, first_ = nullptr, second_ = nullptr, repair_ = nullptr,
                 sinks_ = nullptr, split_ = nullptr;
};

}  // namespace tegula::cuda
