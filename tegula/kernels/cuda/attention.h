// Attention on Hopper from the host: which variant of the kernel a call gets, and its launch.
//
//   o = softmax(score(scale q kᵀ)) v,  lse = ln Σ exp(score(scale q kᵀ))
// q [b, sq, hq, d], k and v [b, sk, hk, d], o like q: bf16 or f16, d <= 256, stride 1 over d, other
// strides multiples of 8 elements, aligned to 16 bytes; lse [b, hq, sq] f32. hk divides hq. Causal:
// query i sees the keys j <= i + sk - sq; other masks and scores: attention_features.h. Rows
// without keys give o = 0 and lse = -inf; sequences may be empty. What a row does not see does not
// reach it, not even NaN. Numerics: f32 scores and sums, weights rounded to 16 bits; the same bits
// in every run.
//
// In e4m3: q, k and v stand for their elements times a factor for each batch entry and KV head
// (AttentionDescale), o is bf16 or f16; d is a multiple of 16; strides of q, k and v are multiples
// of 16 elements. V goes through a workspace of its own size. Weights are rounded to e4m3, relative
// to their row's largest so far; each tile's product is summed in f32.
#pragma once

#include <string>
#include <vector>

#include "tegula/base/round.h"
#include "tegula/kernels/cuda/attention_features.h"
#include "tegula/kernels/cuda/driver.h"
#include "tegula/kernels/cuda/nvrtc.h"

namespace tegula::cuda {

// The constants that are compiled in; attention_sm90.cu says what each does.
struct AttentionVariant {
  int head_dim = 128;  // 64, 96, 128, 192 or 256
  bool is_causal = false;
  bool is_f16 = false;
  bool is_f8 = false;   // q, k and v are e4m3; is_f16 is of o
  bool is_odd = false;  // tensors' head_dim is no multiple of 8
  AttentionFeatures features;
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
  bool is_f16 = false;  // else bf16
  AttentionFeatures features;
  bool is_f8 = false;   // q, k and v are e4m3
  bool is_f32 = false;  // attention_f32.h
};

// Strides in elements over batch, row and head.
struct AttentionOperand {
  void* data = nullptr;
  int64_t batch = 0, row = 0, head = 0;
};
inline AttentionTensor tensor_of(const AttentionOperand& t) {
  return {static_cast<unsigned short*>(t.data), t.batch, t.row, t.head};
}

struct AttentionCall {
  AttentionShape shape;
  AttentionOperand q, k, v, o;
  float* lse = nullptr;
  float scale = 1;
  AttentionFeatureParams given{};  // what the features read
  AttentionDescale q_descale{}, k_descale{}, v_descale{};
  void* workspace = nullptr;  // attention_workspace_bytes, aligned to 16 bytes (f32: 64)
  unsigned* counter =
      nullptr;  // 0 before the first launch; launches that may overlap need their own
  Stream stream;
};

// Whether the kernels can serve a shape: invalid_argument or unsupported, with the reason and the
// nearest that they can.
Status check_attention(const AttentionShape& shape, float scale);

int64_t attention_workspace_bytes(const AttentionShape& shape);

// The head_dim that tensors of `head_dim` are padded to; 0 if there is none.
int padded_head_dim(int64_t head_dim);

// Whether writing `out` (of `heads` heads and `rows` rows) leaves `in` as it is; `what` names both.
Status check_apart(const AttentionOperand& out, int64_t out_rows, int64_t out_heads,
                   const AttentionOperand& in, int64_t in_rows, int64_t in_heads,
                   const AttentionShape& shape, const char* what);

// The same of o, with q, k and v.
Status check_o_apart(const AttentionCall& call);

// The parameters of a call for the kernels of 16 bits and of f32: tiles of tile_m queries, of
// `section_mb` MB of keys and values at once, `kv_bytes` of one head.
AttentionParams attention_params(const AttentionCall& call, int tile_m, int section_mb,
                                 int64_t kv_bytes);

// The fastest variant measured for a shape (bench/results/attention_cuda.json).
Result<AttentionVariant> choose_attention(const AttentionShape& shape);

// A compiled variant in the current context.
class AttentionKernel {
 public:
  static Result<AttentionKernel> load(const AttentionVariant& variant, const std::string& cubin);
  Status launch(const AttentionCall& call) const;

 private:
  AttentionKernel(const AttentionVariant& variant, Module module, FunctionHandle function,
                  FunctionHandle transpose, int n_multiprocessors)
      : variant_(variant),
        module_(std::move(module)),
        function_(function),
        transpose_(transpose),
        n_multiprocessors_(n_multiprocessors) {}
  Status transpose_v(const AttentionCall& call) const;
  AttentionVariant variant_;
  Module module_;
  FunctionHandle function_, transpose_;  // transpose_ of e4m3 only
  int n_multiprocessors_;
};

}  // namespace tegula::cuda
