// Attention: O = softmax(scale·Q Kᵀ + mask) V and the row log-sum-exp, with every mask and feature
// as an option. One op; its backward is another. [Dao 2023, FlashAttention-2, section 3.1]
//
// q [b, sq, hq, d], k [b, sk, hk, d], v [b, sk, hk, dv] -> o [b, sq, hq, dv], lse [b, hq, sq]
// (f32). Query head h reads key head h / (hq / hk). Query i stands at position i + (sk − sq), key j
// at j: a causal mask is aligned at the bottom right, so with a KV cache the last query sees every
// key.
//   score = cap·tanh(scale·q·k / cap) + bias − slope·|position difference|,  visible pairs only
// Results and arithmetic are q's dtype. k and v have it, too, or are both bf16 or both f16 beside a
// q in f32: a cache in half the bytes.
// Rows that see no key give o = 0, lse = −inf and zero gradients. sq and sk may be symbolic.
// Cost: the FLOPs of visible pairs; packed sequences, whose offsets are data, as if they were one,
// and keys in pages as if every page of the table were full.
#pragma once

#include <optional>

#include "tegula/ir/builder.h"

namespace tegula {

struct AttentionOptions {
  double scale = 0;  // 0: 1/sqrt(d)
  bool is_causal = false;
  // The mask aligned at the top left instead: query i sees keys j ≤ i, whatever sq and sk (torch's
  // scaled_dot_product_attention). Not with windows or packed sequences.
  bool is_causal_top_left = false;
  int64_t window_left = -1;   // keys at most so many positions before the query; −1: any
  int64_t window_right = -1;  // … after it
  double softcap = 0;         // 0: none
  Var bias;                   // [b or 1, hq or 1, sq or 1, sk], differentiable
  Var alibi;                  // slopes [hq]; constants to autodiff [Press et al. 2022]
  // Packed sequences (b = 1): i32 [n + 1] offsets; queries see keys of their own sequence only, and
  // positions count within it, aligned at the bottom right. Rows past the last offset see nothing.
  // Without cu_seqlens_k: those of q.
  Var cu_seqlens_q, cu_seqlens_k;
  // Keys and values in pages: k [n_pages, page, hk, d], v [n_pages, page, hk, dv], one page of
  // which may serve several sequences. Sequence s has seqlens_k[s] keys (i32 [n], clamped to what
  // its pages hold); key j is row j % page of page block_table[s, j / page] (i32 [n, pages],
  // clamped to the pages there are). Queries are packed by cu_seqlens_q, without a cu_seqlens_k, or
  // the batch is the sequences, b = n. The last query of each stands at its last key. Blocks of
  // keys lie at positions within the sequence, whatever the page, so that a sequence has the same
  // bits in any pages, beside any others. A padded batch with lengths is one page a sequence. [Kwon
  // et al. 2023, section 4.1] No bias, dropout or descale; gradients go through the decomposition.
  Var seqlens_k, block_table;
  // Positions in runs: start, stride, count, … of each; empty: as above. Of a part of a longer row,
  // of its stripes, or of a row that is dealt out in another order. With constant sizes, unpacked.
  std::vector<int64_t> q_runs, k_runs;
  // Attention in parts of the keys: each goes on from the o and lse that those before it gave, f32
  // whatever q is, and gives its own so if others follow (is_part):
  //   lse' = log(e^lse_before + e^lse),  o' = o_before e^(lse_before - lse') + o e^(lse - lse')
  // A query that has seen no key has lse_before = -inf, and its o_before is not read. (o, lse) says
  // as much as (o, m, l): l = 1 where m = lse. [Dao 2023 (FlashAttention-2), section 3.1]
  Var o_before, lse_before;  // [b, sq, hq, dv], [b, hq, sq]; differentiable
  bool is_part = false;
  // A weight is dropped where u < dropout, else scaled by 1/(1 − dropout), with u uniform at
  // (seed, stream, ((b·hq + h)·sq + i)·sk + j). lse is that of all weights.
  double dropout = 0;
  Var seed;  // i64 scalar
  int64_t stream = 0;
  // For q, k and v in e4m3, all or none: f32 [b or 1, hk or 1], what their elements are to be
  // multiplied with. o is bf16 then.
  Var descale_q, descale_k, descale_v;
};

struct Attention {
  Var o, lse;
};

// The attributes of an attention, or of its gradients, whose keys are brought in the order of their
// positions; none: they lie in it, or something else (bias, dropout) counts them as they lie.
std::optional<Attrs> in_key_order(const OpCall& call);

Attention attention(Var q, Var k, Var v, const AttentionOptions& options = {},
                    Loc loc = Loc::current());

}  // namespace tegula
