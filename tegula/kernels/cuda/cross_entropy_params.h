// Passed by value by a launch of the rows of a cross-entropy.
#pragma once

namespace tegula::cuda {

// A block goes along its row in steps of 16 bytes a thread, whose copies into shared memory run
// ahead by kCrossEntropyAhead: 128 KB of two blocks. An H100 needs 18 KB on their way to a
// multiprocessor (3.35 TB/s times 700 ns).
constexpr int kCrossEntropyThreads = 512, kCrossEntropyAhead = 8;
constexpr int kCrossEntropyStepBytes = 16 * kCrossEntropyThreads;

// Strides count elements. logits: [n, v], 16-bit, rows aligned to 16 bytes.
struct CrossEntropyParams {
  unsigned short* logits;  // the gradient's place, too
  long long row;           // between rows, a multiple of 8
  const void* targets;
  const float *dlse, *dpicked;
  float *lse, *picked;  // of the backward lse is given and picked null
  long long target_stride, dlse_stride, dpicked_stride, lse_stride, picked_stride;
  long long ignore_index;
  int v;
  int n_slots;  // steps that shared memory has room for: all, or more than kCrossEntropyAhead
};

// Rows whose exponentials are written by the product itself (matmul_sm90.cu, TEGULA_EXP) have in
// the logits' place e = exp(logit - shift), where shift is what the target's logit comes to
// beforehand, so that the row's total says how the loss turned out. A row stands while its total is
// in between these; else its gradient is made of its logits.
constexpr int kScaledRowsThreads = 256;
constexpr float kLeastTotal = 0x1p-80f, kMostTotal = 0x1p80f;
constexpr float kMostRatio = 0x1p24f;  // of dpicked to dlse
struct ScaledRowsParams {
  const unsigned short *x, *w;   // [n, d], [v, d]
  unsigned short* scaled_x;      // x · scale
  float *shift, *total, *scale;  // [n]; shift in units of 1/log2(e), total NaN of rows to be redone
  const float* sums;             // [n, n_sums]
  int* redo;                     // whether there is any such row
  long long d, n;
  int n_sums;
};

// sum[i] + part[i]: back into sum, or, where it is given, rounded into out.
struct AddPartParams {
  float* sum;
  const float* part;
  unsigned short* out;
  long long n;
};

}  // namespace tegula::cuda
