// Gradients of attention on Hopper from the host.
//
//   given o, lse and do of attention.h:  dq, dk, dv, like q, k, v
// Operands, masks and rounding as in attention.h. P and dS are rounded to bf16. dk
// and dv have the same bits in every run; dq is summed over key tiles in an order that is not
// fixed. Rows without keys give gradients of 0.
#pragma once

#include "tegula/kernels/cuda/attention.h"

namespace tegula::cuda {

struct AttentionBwdCall {
  AttentionShape shape;
  AttentionOperand q, k, v, o, d_o, dq, dk, dv;
  const float* lse = nullptr;
  float scale = 1;
  void* workspace = nullptr;  // attention_bwd_workspace_bytes, aligned to 256, contents undefined
  StreamHandle stream = nullptr;
};

int64_t attention_bwd_workspace_bytes(const AttentionShape& shape);

std::vector<std::string> attention_bwd_defines(int head_dim, bool is_causal);

// The three kernels of a variant in the current context.
class AttentionBwdKernel {
 public:
  static Result<AttentionBwdKernel> load(int head_dim, bool is_causal, const std::string& cubin);
  Status launch(const AttentionBwdCall& call) const;

 private:
  AttentionBwdKernel(int head_dim, bool is_causal, Module module)
      : head_dim_(head_dim), is_causal_(is_causal), module_(std::move(module)) {}
  int head_dim_;
  bool is_causal_;
  Module module_;
  FunctionHandle before_ = nullptr, main_ = nullptr, after_ = nullptr;
};

}  // namespace tegula::cuda
