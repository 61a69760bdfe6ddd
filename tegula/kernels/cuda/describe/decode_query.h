// A call of attention as the decoding kernel takes it.
#pragma once

#include "tegula/kernels/cuda/attention_decode.h"
#include "tegula/kernels/cuda/describe/attention_query.h"

namespace tegula::cuda {

// With heads of a block that fill the target.
inline DecodeShape decode_shape(const kernel::AttentionCall& c, const Target& target) {
  DecodeShape s{.batch = c.batch,
                .seqlen_q = c.n_q,
                .seqlen_k = c.n_k,
                .n_heads_q = c.n_heads,
                .n_heads_kv = c.n_kv_heads,
                .head_dim = c.d,
                .is_causal = c.is_causal,
                .window_left = c.left,
                .page_size = c.page,
                .is_f16 = c.q->dtype == DType::kF16};
  // With pages a sequence's bits are its own, whatever the batch.
  if (c.page == 0 && s.n_heads_kv > 0 && s.n_heads_q % s.n_heads_kv == 0)
    s.heads = decode_heads(s, target.multiprocessors);
  return s;
}

// Keys of a split of sequences in pages.
inline constexpr int64_t kKeysPerSplitOfPages = 512;

}  // namespace tegula::cuda
