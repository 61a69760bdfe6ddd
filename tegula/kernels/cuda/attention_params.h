// Passed by value by a launch of an attention kernel: read by host and device code alike, so plain
// types only.
#pragma once

namespace tegula::cuda {

// A tensor [b, s, h, d] with stride 1 over d, of 16-bit elements, e4m3 or f32; strides in elements.
struct AttentionTensor {
  unsigned short* data;
  long long batch, row, head;
};

// Read by masks and score functions (attention_score.cuh); what is not compiled in is not read.
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
  // Keys in pages: K and V are [page, row in it, hk, d], `batch` of their strides a page's.
  // Sequence s (packed by cu_seqlens_q, or batch entry s) has seqlens_k[s] keys; key j is row j %
  // page_size of page block_table[s, j / page_size].
  const int *seqlens_k, *block_table;
  int pages_per_sequence, page_size, last_page;  // larger numbers are the last page
  int lse_rows;                                  // from one head of lse to the next
  int window_left, window_right;                 // keys before and after the aligned one; < 0: all
  float softcap, softcap_inverse;
  float dropout, keep_factor;  // keep_factor = 1 / (1 - dropout)
};

// The factors of e4m3 elements, for each batch entry and KV head; strides may be 0, and null means
// 1.
struct AttentionDescale {
  const float* data;
  long long batch, head;
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
  AttentionDescale q_descale, k_descale, v_descale;
  unsigned int* leaked;  // f32: some result is not finite
  int row_shift;         // by which tiles begin before the first row
};

// attention_split.cuh: f32 tensors, and where their parts go.
struct SplitTensor {
  const float* data;
  long long batch, row, head;
  unsigned short* parts;  // [3][b · h][s][TEGULA_HEAD_DIM]
  int rows, heads;
};
struct SplitParams {
  SplitTensor t[4];
  int batch, head_dim, is_aligned;  // is_aligned: four columns of a row can be read at once
  unsigned int* leaked;             // becomes 0
};

// The Hopper backward. The workspace has tiles of 64 query rows, `n_tiles_m` per head: with packed
// sequences they are cut as part_of_tile<64> says.
struct AttentionBwdParams {
  float* dq_sum;  // [b, hq, n_tiles_m, 64 · d] in the order of wgmma's fragments, or null
  // [b, hq, n_tiles_m, 64]: lse · log2(e) (f32: lse); +inf: no keys, or padding
  float* lse2;
  float* delta;          // [b, hq, n_tiles_m, 64]: Σ_d o · do, less the gradient of lse
  float* sink_parts;     // [b, hq, n_tiles_m]: of d_sinks
  unsigned int* leaked;  // some result is not finite
  // [b, hq, n_tiles_m, orders_of_tile]: units that have added to a tile of dq_sum, or its parts
  unsigned int* order;
  unsigned int* ticket;  // blocks that have started
  const float* lse;      // [b, hq, sq]
  const float* d_lse;    // the same, or null
  float* d_bias;         // f32, laid out as d_bias_* say; summed where a stride is 0
  float* d_sinks;        // [hq]
  long long d_bias_batch, d_bias_head, d_bias_row;
  int seqlen_q, seqlen_k, n_heads_q, n_heads_kv, group, head_dim;
  int batch;
  int n_tiles_m;
  int n_units_k;          // of 128 keys, per KV head
  int n_units_q;          // of 128 queries, per query head
  int heads_per_section;  // KV heads worked on at once
  int d_bias_sums;        // d_bias is smaller than the scores
  int is_second;          // of two kernels that may run at once
  float scale, scale_log2;
  AttentionFeatureParams f;
  AttentionTensor q, k, v, o, d_o, dq, dk, dv;
  int heads_at_end;    // heads_per_section, of the last section; the others are whole
  int orders_of_tile;  // 0: dq_sum is summed in no order
};

// Few queries, many keys. K and V are [b, s, hk, d], or pages [page, row in it, hk, d]: then
// `batch` of their strides is that of a page.
struct AttentionDecodeParams {
  AttentionTensor q, k, v, o;
  float* lse;              // [b, hq, sq], or null
  void* partial;           // of every split: accumulators, then maxima and sums of weights
  unsigned int* counters;  // [b, hk, n_tiles]: 0 before and after
  const int* seqlens_k;    // [b], or null: all seqlen_k
  const int* pages;        // [b, pages_per_sequence]
  int seqlen_q, seqlen_k, n_heads_q, n_heads_kv, group, head_dim;
  int n_tiles;             // that the rows of a KV head, its heads times queries, make
  unsigned group_inverse;  // row / group is row · group_inverse / 2¹⁶, for the few rows there are
  int keys_per_split, n_splits;
  int n_slots;                                   // steps that a warp has under way: 1 or all
  int pages_per_sequence, page_size, page_log2;  // page_log2 < 0: not a power of two
  int last_page;                                 // larger numbers are this one
  int window_left;                               // < 0: none
  int is_causal;
  int keeps_kv;      // K and V are to stay in the L2 cache
  int is_settled;    // lengths and pages may be read before the kernel before has ended
  float scale_log2;  // scale · log2(e)
};

// Its pointers, where a kernel's text has all else as constants.
struct AttentionPointers {
  unsigned short *q, *k, *v, *o;
  float* lse;
  void* partial;
  unsigned* counters;
  const int *seqlens_k, *pages;
};

// Whether a block looks up lengths and pages, or keeps what it has looked up for its next calls, or
// takes what it has kept.
enum AttentionLookUp : int {
  kLookUp,
  kLookUpAndKeep,
  kTakeKept,
};

struct AttentionPadParams {
  AttentionTensor to, from;
  long long to_step, from_step;  // elements from a column to the next
  long long n_rows;              // batch · seqlen · n_heads
  int seqlen, n_heads, head_dim;
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
