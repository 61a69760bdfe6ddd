// What a launch of an attention kernel passes by value: read by host and device code alike, so
// plain types only.
#pragma once

namespace tegula::cuda {

// A tensor [b, s, h, d] of 16-bit elements with stride 1 over d; strides in elements.
struct AttentionTensor {
  unsigned short* data;
  long long batch, row, head;
};

// What masks and score functions read (attention_score.cuh); what is not compiled in is not read.
struct AttentionFeatureParams {
  // Packed sequences: n_sequences + 1 rising offsets into the rows of q and of k; batch is 1.
  const int *cu_seqlens_q, *cu_seqlens_k;
  // [b, sq] and [b, sk], rising along a row: a query sees the keys of the same number.
  const int *documents_q, *documents_k;
  const float* slopes;  // [hq]: ALiBi
  const float* sinks;   // [hq]: a score that joins each row's sum and has no value
  const void* bias;     // strides in elements, 0 where it is the same for all; 1 over keys
  long long bias_batch, bias_head, bias_row;
  const long long* seed;  // of dropout, one number
  unsigned long long stream;
  int n_sequences;
  int window_left, window_right;  // keys before and after the aligned one; < 0: all
  float softcap, softcap_inverse;
  float dropout, keep_factor;  // keep_factor = 1 / (1 - dropout)
};

// The Hopper kernel; its tensors come as tensor maps. `counter` is 0 before and after a launch, and
// no two launches that may run at once share it.
struct AttentionParams {
  float* lse;  // [b, hq, sq]
  unsigned int* counter;
  int seqlen_q, seqlen_k, n_heads_q;
  int group;                // query heads of one KV head
  int n_tiles_m;            // tiles of query rows per head
  int n_heads_total;        // batch · n_heads_q
  int heads_per_section;    // heads worked on at once, so that their K and V stay in the L2 cache
  int n_tiles;              // n_tiles_m · n_heads_total
  float scale, scale_log2;  // scale_log2 = scale · log2(e)
  int head_dim;             // of the tensors, at most the kernel's
  AttentionFeatureParams f;
  AttentionTensor q, k, v, o;  // what the tensor maps describe
};

// The Hopper backward. Rows of the workspace are padded to multiples of 64 per head.
struct AttentionBwdParams {
  float* dq_sum;  // [b, hq, sq / 64, 64 · d]: tiles in the order of wgmma's fragments
  float* lse2;    // [b, hq, sq]: lse · log2(e); +inf where a row has no keys or is padding
  float* delta;   // [b, hq, sq]: Σ_d o · do
  int seqlen_q, seqlen_k, n_heads_q, n_heads_kv, group;
  int n_tiles_m;          // tiles of 64 query rows per head
  int n_tiles_n;          // tiles of keys per KV head
  int heads_total;        // batch · n_heads_kv
  int heads_per_section;  // KV heads worked on at once
  float scale, scale_log2;
  AttentionFeatureParams f;
};

// What runs before and after the Hopper backward.
struct AttentionBwdEdgeParams {
  AttentionTensor o, d_o, dq;
  const float* lse;  // [b, hq, sq]
  float *dq_sum, *lse2, *delta;
  int seqlen_q, n_heads_q;
  float scale;
};

// Few queries, many keys. K and V are [b, s, hk, d], or pages [page, row in it, hk, d]: then
// `batch` of their strides is that of a page.
struct AttentionDecodeParams {
  AttentionTensor q, k, v, o;
  float* lse;              // [b, hq, sq], or null
  void* partial;           // of every split: accumulators, then maxima and sums of weights
  unsigned int* counters;  // [b, hk]: 0 before and after
  const int* seqlens_k;    // [b], or null: all seqlen_k
  const int* pages;        // [b, pages_per_sequence]
  int seqlen_q, seqlen_k, n_heads_q, n_heads_kv, group;
  int keys_per_split, n_splits;
  int n_items;                                   // batch · n_splits · n_heads_kv
  int pages_per_sequence, page_size, page_log2;  // page_log2 < 0: not a power of two
  int window_left;                               // < 0: none
  int is_causal;
  float scale_log2;  // scale · log2(e)
};

// The rungs below.
struct AttentionRungParams {
  AttentionTensor q, k, v, o;
  float* lse;     // [b, hq, sq]
  float* scores;  // [b, hq, sq, sk], attention_naive only
  int seqlen_q, seqlen_k, n_heads_q, group, head_dim, is_causal;
  float scale;
};

}  // namespace tegula::cuda
