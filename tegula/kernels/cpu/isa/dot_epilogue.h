// The end of a contraction: f32 sums are rounded to the output's dtype, then bias and activation,
// each rounded as separate nodes would, then stored through any strides.
#pragma once

#include "tegula/kernels/cpu/common/contraction.h"
#include "tegula/kernels/cpu/isa/vecmath.h"

namespace tegula::kernel::TEGULA_ISA_NS {

TEGULA_VEC Vf round_to(Vf x, const float*) { return x; }
TEGULA_VEC Vf round_to(Vf x, const bf16*) { return widen_bf16(narrow_bf16(x)); }
TEGULA_VEC Vf round_to(Vf x, const f16*) {
  f16 t[kLanes];
  store(t, x);
  return load(t);
}

TEGULA_VEC Vf activate(Vf x, Activation f) {
  switch (f) {
    case Activation::kNone:
      return x;
    case Activation::kRelu:
      return relu(x);
    case Activation::kGelu:
      return gelu(x);
    case Activation::kSilu:
      return silu(x);
  }
  return x;
}

// Rows × columns sums at `acc`, acc_stride floats apart, for outputs m0.. and n0.. of one batch.
struct EpilogueArgs {
  const Contraction* c;
  const float* acc;
  int64_t acc_stride;
  int64_t batch, m0, n0;
  int rows, cols;  // cols ≤ 32
};

template <class Out>
static void epilogue(const EpilogueArgs& e, const Out* bias, Out* out) {
  const Contraction& c = *e.c;
  int64_t out_n[32], bias_n[32];
  c.n.offsets(e.n0, e.cols, kOut, out_n);
  if (c.has_bias) c.n.offsets(e.n0, e.cols, kBias, bias_n);
  bool adjacent = true, bias_adjacent = true;
  for (int j = 1; j < e.cols; ++j) {
    adjacent = adjacent && out_n[j] == out_n[0] + j;
    bias_adjacent = bias_adjacent && (!c.has_bias || bias_n[j] == bias_n[0] + j);
  }
  const int64_t out_batch = c.batch.offset(e.batch, kOut);
  const int64_t bias_batch = c.has_bias ? c.batch.offset(e.batch, kBias) : 0;
  for (int i = 0; i < e.rows; ++i) {
    Out* row = out + out_batch + c.m.offset(e.m0 + i, kOut);
    const Out* bias_row = c.has_bias ? bias + bias_batch + c.m.offset(e.m0 + i, kBias) : nullptr;
    for (int j = 0; j < e.cols; j += kLanes) {
      const int n = e.cols - j < kLanes ? e.cols - j : kLanes;
      Vf y = round_to(load_n(e.acc + i * e.acc_stride + j, n), row);
      if (c.has_bias) {
        Out t[kLanes] = {};
        for (int l = 0; l < n && !bias_adjacent; ++l) t[l] = bias_row[bias_n[j + l]];
        y = round_to(y + (bias_adjacent ? load_n(bias_row + bias_n[j], n) : load(t)), row);
      }
      if (c.activation != Activation::kNone) y = activate(y, c.activation);
      if (adjacent && n == kLanes) {
        store(row + out_n[j], y);
      } else if (adjacent) {
        store_n(row + out_n[j], y, n);
      } else {
        Out t[kLanes];
        store(t, y);
        for (int l = 0; l < n; ++l) row[out_n[j + l]] = t[l];
      }
    }
  }
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
