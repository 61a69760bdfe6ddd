// Decoding on Hopper and before (sm_80 on): attention of a few queries over many keys, from dense
// or paged K and V.
//
//   o = softmax(scale q kᵀ + mask) v,  lse = ln Σ exp(scale q kᵀ + mask)
// q and o [b, sq, hq, d]; k and v [b, sk, hk, d], or pages [n_pages, page_size, hk, d] with a table
// [b, pages_per_sequence]: bf16 or f16, d a multiple of 8 up to 256, stride 1 over d, other strides
// multiples of 8 elements, aligned to 16 bytes; lse [b, hq, sq] f32, or null. hk divides hq, and
// sq · hq / hk <= 128. A sequence's length may be its own (seqlens_k). Causal: query i sees the
// keys j <= i + sk - sq; a window: j >= i + sk - sq - window_left. What no query sees is never
// read. Rows without keys give o = 0 and lse = -inf. Numerics: f32 scores and sums, weights rounded
// to bf16 or f16.
//
// Bits: a sequence's result depends on its own length, keys_per_split and `heads` only, never on
// the batch beside it nor on the machine. Flash-Decoding (Dao et al. 2023); pages: Kwon et al.
// 2023, section 4.
#pragma once

#include "tegula/kernels/cuda/attention.h"

namespace tegula::cuda {

struct DecodeVariant {
  int head_dim = 128;  // 64 | 128 | 256: of the tile
  int rows = 8;        // 8 | 16 of the sq · hq / hk are a tile
  bool is_paged = false;
  bool is_f16 = false;
  int n_warps = 8;
  int n_blocks = 1;  // of a multiprocessor
  int n_slots = 2;   // steps of 16 keys that a warp has under way
  int heads = 1;     // KV heads of a block, a power of two

  int smem_bytes() const;
  std::string name() const;  // "decode_d128_r8_paged_f16"
  std::vector<std::string> defines() const;
};

struct DecodeShape {
  int64_t batch = 1, seqlen_q = 1, seqlen_k = 1, n_heads_q = 1, n_heads_kv = 1, head_dim = 128;
  bool is_causal = false;
  int64_t window_left = -1;
  int64_t page_size = 0;  // 0: dense
  bool is_f16 = false;
  int heads = 1;  // KV heads of a block: 1, or what decode_heads says
};

struct DecodeCall {
  DecodeShape shape;  // seqlen_k: the longest
  AttentionOperand q, k, v, o;
  float* lse = nullptr;
  const int* seqlens_k = nullptr;
  const int* pages = nullptr;
  int64_t pages_per_sequence = 0;
  int64_t n_pages = int64_t{1} << 30;  // there are; numbers past them are the last one's
  // No kernel that may still run while the one before ends writes seqlens_k or pages: they are read
  // then. (K and V may be what it writes.)
  bool is_settled = false;
  int64_t keys_per_split = 512;
  void* workspace = nullptr;     // decode_workspace_bytes, aligned to 256, contents undefined
  unsigned* counters = nullptr;  // decode_blocks, 0 before the first launch
  float scale = 1;
  Stream stream;
};

// KV heads that a block should take: several where sequences are equally long and have more heads
// than the device has multiprocessors. The bits depend on it.
int decode_heads(const DecodeShape& shape, int n_multiprocessors);
// Keys of a split so that the blocks fill the device once. For bits that do not depend on the
// batch, take a number of your own, say 512.
int64_t decode_split(const DecodeShape& shape, int n_multiprocessors);
// The blocks of a split: one for a sequence and KV head (or `heads` of them) and tile.
int64_t decode_blocks(const DecodeShape& shape);
int64_t decode_workspace_bytes(const DecodeShape& shape, int64_t keys_per_split);

// The variant for a shape on a device; unsupported with the nearest that works, or
// invalid_argument.
Result<DecodeVariant> choose_decode(const DecodeShape& shape, int capability = 90);

class DecodeKernel {
 public:
  static Result<DecodeKernel> load(const DecodeVariant& variant, const std::string& cubin);
  Status launch(const DecodeCall& call) const;

 private:
  DecodeKernel(const DecodeVariant& variant, Module module, FunctionHandle function)
      : variant_(variant), module_(std::move(module)), function_(function) {}
  DecodeVariant variant_;
  Module module_;
  FunctionHandle function_;
};

}  // namespace tegula::cuda
