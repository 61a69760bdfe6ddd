// Attention of f32 tensors on Hopper from the host, by bf16 tensor cores.
//
//   o = softmax(score(scale q kᵀ)) v,  lse = ln Σ exp(score(scale q kᵀ))
// Operands as in attention.h, but f32, with any strides over batch, row and head.
// Numerics: factors in three parts of 8 bits, a product as six, f32 sums: the error is that of f32
// arithmetic. The same bits in every run. Workspace: 6 bytes an element of q, k and v, padded to a
// head_dim of 64, 128 or 256. The backward goes to 128.
#pragma once

#include "tegula/kernels/cuda/attention.h"

namespace tegula::cuda {

// The constants that are compiled in; attention_f32_sm90.cu says what each does.
struct AttentionF32Variant {
  int head_dim = 64;  // 128 or 256
  bool is_causal = false;
  AttentionFeatures features;
  int tile_n = 112;
  int n_consumers = 2;
  int n_slots = 4;
  int lazy_log2 = 8;
  int section_mb = 16;  // parts of K and V of the heads worked on at once (causal)

  int tile_m() const { return 64 * n_consumers; }
  int threads() const { return 128 * (1 + n_consumers); }
  int smem_bytes() const;
  // "f32_d64_causal_m128n112s4"
  std::string name() const;
  std::vector<std::string> defines() const;
};

// Checks what the kernels of f32, this one and its backward, can serve.
Status check_attention_f32(const AttentionShape& shape, float scale);

Result<AttentionF32Variant> choose_attention_f32(const AttentionShape& shape);

int64_t attention_f32_workspace_bytes(const AttentionF32Variant& variant,
                                      const AttentionShape& shape);

// The kernels of a variant in the current context. A call's workspace is aligned to 64 bytes; what
// it holds before does not matter.
class AttentionF32Kernel {
 public:
  static Result<AttentionF32Kernel> load(const AttentionF32Variant& variant,
                                         const std::string& cubin);
  Status launch(const AttentionCall& call) const;

 private:
  AttentionF32Kernel(const AttentionF32Variant& variant, Module module, int n_multiprocessors)
      : variant_(variant), module_(std::move(module)), n_multiprocessors_(n_multiprocessors) {}
  AttentionF32Variant variant_;
  Module module_;
  FunctionHandle split_ = nullptr, attend_ = nullptr, repair_ = nullptr;
  int n_multiprocessors_;
};

// ---- Parts, for the forward and the backward ----------------------------------------------------

// Bytes of the parts of `rows` rows of `heads` heads.
int64_t split_bytes(int64_t heads, int64_t rows, int head_dim);

// Adds a tensor to what a launch splits; its parts go to `at`, which moves past them.
void add_split(SplitParams& p, int index, const AttentionOperand& t, int64_t rows, int64_t heads,
               int64_t batch, int head_dim, char*& at);

Status launch_split(FunctionHandle split, SplitParams p, int n_tensors, const AttentionShape& shape,
                    int head_dim, unsigned* leaked, const Stream& stream);

// The parts of a tensor in boxes of `rows` rows; without rows, of any other.
Result<HostTensorMap> map_of_parts(const SplitTensor& t, int64_t batch, int head_dim, int rows);

}  // namespace tegula::cuda
