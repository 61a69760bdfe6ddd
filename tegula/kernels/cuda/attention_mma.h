// Attention by mma.sync from the host: for GPUs without wgmma, and the third rung of the ladder.
//
//   o = softmax(score(scale q kᵀ)) v,  lse = ln Σ exp(score(scale q kᵀ))
// Operands, masks, scores and numerics as in attention.h, of bf16 and f16; strides over batch, row
// and head multiples of 8 elements, aligned to 16 bytes. The same bits in every run.
#pragma once

#include "tegula/kernels/cuda/attention.h"

namespace tegula::cuda {

// The constants that are compiled in; attention_mma.cu says what each does.
struct AttentionMmaVariant {
  int head_dim = 128;  // 64, 96, 128, 192 or 256
  bool is_causal = false;
  bool is_f16 = false;
  AttentionFeatures features;
  int tile_n = 64;
  int n_groups = 2;  // of 16 rows of a warp

  int threads() const { return 256 / n_groups; }
  int smem_bytes() const;
  std::string name() const;  // "mma_d128_causal_n64g2"
  std::vector<std::string> defines() const;
};

// As check_attention, and that q, k and v have 16 bits.
Status check_attention_mma(const AttentionShape& shape, float scale);

// Whether 16 bytes at a time can be copied from it.
Status check_copyable(const char* what, const AttentionOperand& t);

// With the tiles that fit a block's shared memory.
Result<AttentionMmaVariant> choose_attention_mma(const AttentionShape& shape,
                                                 int most_smem_bytes = max_smem_bytes(80));

// A compiled variant in the current context.
class AttentionMmaKernel {
 public:
  static Result<AttentionMmaKernel> load(const AttentionMmaVariant& variant,
                                         const std::string& cubin);
  Status launch(const AttentionCall& call) const;

 private:
  AttentionMmaKernel(const AttentionMmaVariant& variant, Module module, FunctionHandle function)
      : variant_(variant), module_(std::move(module)), function_(function) {}
  AttentionMmaVariant variant_;
  Module module_;
  FunctionHandle function_;
};

}  // namespace tegula::cuda
