// The two lowest rungs of the attention ladder from the host: naive (scores in memory) and tiled
// (online softmax), both bf16 in and out, f32 within. Operands and masks as in attention.h; strides
// over d are 1, the others any.
#pragma once

#include "tegula/kernels/cuda/attention.h"

namespace tegula::cuda {

// invalid_argument or unsupported, with the reason.
Status check_attention_rung(const AttentionShape& shape, bool is_naive);

class AttentionRung {
 public:
  static std::string_view source(bool is_naive);
  // The defines of head_dim 64 or 128; 0: the naive rung, which takes any up to 1024.
  static std::vector<std::string> defines(int head_dim);
  static Result<AttentionRung> load(int head_dim, const std::string& cubin);
  // scores: [b, hq, sq, sk], of the naive rung.
  Status launch(const AttentionCall& call, float* scores) const;

 private:
  AttentionRung(int head_dim, Module module) : head_dim_(head_dim), module_(std::move(module)) {}
  int head_dim_;
  Module module_;
  FunctionHandle functions_[3] = {};
};

}  // namespace tegula::cuda
