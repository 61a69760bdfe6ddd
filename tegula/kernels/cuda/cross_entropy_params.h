// What a launch of the rows of a cross-entropy passes by value.
#pragma once

namespace tegula::cuda {

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
};

// sum[i] + part[i]: back into sum, or, where it is given, rounded into out.
struct AddPartParams {
  float* sum;
  const float* part;
  unsigned short* out;
  long long n;
};

}  // namespace tegula::cuda
