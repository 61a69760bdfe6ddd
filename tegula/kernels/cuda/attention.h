// Attention on Hopper from the host: which variant of the kernel a call gets, and its launch.
//
//   o = softmax(scale q kᵀ + mask) v,  lse = ln Σ exp(scale q kᵀ + mask)
// q [b, sq, hq, d], k and v [b, sk, hk, d], o like q: bf16, stride 1 over d, other strides
// multiples of 8 elements, aligned to 16 bytes; lse [b, hq, sq] f32. hk divides hq. Causal: query i
// sees the keys j <= i + sk - sq. Rows without keys give o = 0 and lse = -inf. Numerics: f32 scores
// and sums, weights rounded to bf16; the same bits in every run.
#pragma once

#include <string>
#include <vector>

#include "tegula/kernels/cuda/driver.h"
#include "tegula/kernels/cuda/nvrtc.h"

namespace tegula::cuda {

// What is compiled in; attention_sm90.cu says what each does.
struct AttentionVariant {
  int head_dim = 128;
  bool is_causal = false;
  int tile_n = 128;
  int n_consumers = 2;
  int n_stages = 2;
  bool ping_pong = true;
  int lazy_log2 = 8;
  bool q_registers = false;
  int section_mb = 16;  // K and V of the heads worked on at once (causal)

  int tile_m() const { return 64 * n_consumers; }
  int threads() const { return 128 * (1 + n_consumers); }
  int smem_bytes() const;
  // "d128_causal_m128n128s2_pp_qr_lz8_sec16"
  std::string name() const;
  std::vector<std::string> defines() const;
};

struct AttentionShape {
  int64_t batch = 1, seqlen_q = 1, seqlen_k = 1, n_heads_q = 1, n_heads_kv = 1, head_dim = 128;
  bool is_causal = false;
};

// Strides in elements over batch, row and head.
struct AttentionOperand {
  void* data = nullptr;
  int64_t batch = 0, row = 0, head = 0;
};

struct AttentionCall {
  AttentionShape shape;
  AttentionOperand q, k, v, o;
  float* lse = nullptr;
  float scale = 1;
  unsigned* counter =
      nullptr;  // 0 before the first launch; launches that may overlap need their own
  StreamHandle stream = nullptr;
};

// Whether the kernels can serve a shape: invalid_argument or unsupported, with the reason.
Status check_attention(const AttentionShape& shape, float scale);

// The fastest variant measured for a shape (bench/results/attention_cuda.json); unsupported when
// head_dim is neither 64 nor 128.
Result<AttentionVariant> choose_attention(const AttentionShape& shape);

// A compiled variant in the current context.
class AttentionKernel {
 public:
  static Result<AttentionKernel> load(const AttentionVariant& variant, const std::string& cubin);
  Status launch(const AttentionCall& call) const;

 private:
  AttentionKernel(const AttentionVariant& variant, Module module, FunctionHandle function,
                  int n_multiprocessors)
      : variant_(variant),
        module_(std::move(module)),
        function_(function),
        n_multiprocessors_(n_multiprocessors) {}
  AttentionVariant variant_;
  Module module_;
  FunctionHandle function_;
  int n_multiprocessors_;
};

}  // namespace tegula::cuda
