// The end of a contraction: f32 sums are rounded to the output's dtype, then scale, bias and
// activation, each rounded as separate nodes would, then stored through any strides.
#pragma once

#include "tegula/kernels/cpu/common/dot_plan.h"
#include "tegula/kernels/cpu/isa/vecmath.h"

namespace tegula::kernel::TEGULA_ISA_NS {

TEGULA_VEC Vf round_to(Vf x, const float*) { return x; }
TEGULA_VEC Vf round_to(Vf x, const bf16*) { return round_bf16(x); }
TEGULA_VEC Vf round_to(Vf x, const f16*) {
  f16 t[kLanes];
  store(t, x);
  return load(t);
}

template <Activation kF>
TEGULA_VEC Vf activate(Vf x) {
  if constexpr (kF == Activation::kRelu) return relu(x);
  if constexpr (kF == Activation::kGelu) return gelu(x);
  if constexpr (kF == Activation::kSilu) return silu(x);
  return x;
}

inline constexpr int kEpilogueRows = 32;

// Rows × columns sums at `acc`, acc_stride floats apart, for outputs m0.. and n0.. of one batch.
struct EpilogueArgs {
  const Contraction* c;
  const float* acc;
  int64_t acc_stride;
  int64_t batch, m0, n0;
  int rows, cols;  // at most kEpilogueRows, kMaxTileN
};

// Where one epilogue's columns go.
struct EpilogueColumns {
  int64_t out[kMaxTileN], bias[kMaxTileN];
  bool out_adjacent = true, bias_adjacent = true;
};

// One row; the activation is a template argument, so that its polynomial is all the loop holds.
template <Activation kF, class Out>
static void epilogue_row(const EpilogueArgs& e, const EpilogueColumns& at, const float* acc,
                         const Out* bias, Out* row) {
  const bool has_scale = e.c->has_scale, has_epilogue = e.c->has_epilogue();
  const Vf scale = set1(static_cast<float>(e.c->scale));
  for (int j = 0; j < e.cols; j += kLanes) {
    const int n = e.cols - j < kLanes ? e.cols - j : kLanes;
    Vf y = n == kLanes ? load(acc + j) : load_n(acc + j, n);
    if (has_epilogue) y = round_to(y, row);  // else stored as it is
    if (has_scale) y = round_to(y * scale, row);
    if (bias != nullptr) {
      Out t[kLanes] = {};
      for (int l = 0; l < n && !at.bias_adjacent; ++l) t[l] = bias[at.bias[j + l]];
      const Vf b = !at.bias_adjacent ? load(t)
                   : n == kLanes     ? load(bias + at.bias[j])
                                     : load_n(bias + at.bias[j], n);
      y = round_to(y + b, row);
    }
    y = activate<kF>(y);
    if (at.out_adjacent && n == kLanes) {
      store(row + at.out[j], y);
    } else if (at.out_adjacent) {
      store_n(row + at.out[j], y, n);
    } else {
      Out t[kLanes];
      store(t, y);
      for (int l = 0; l < n; ++l) row[at.out[j + l]] = t[l];
    }
  }
}

template <Activation kF, class Out>
static void epilogue_rows(const EpilogueArgs& e, const EpilogueColumns& at, const Out* bias,
                          Out* out) {
  const Contraction& c = *e.c;
  out += c.batch.offset(e.batch, kOut);
  if (bias != nullptr) bias += c.batch.offset(e.batch, kBias);
  int64_t out_m[kEpilogueRows], bias_m[kEpilogueRows];
  c.m.offsets(e.m0, e.rows, kOut, out_m);
  if (bias != nullptr) c.m.offsets(e.m0, e.rows, kBias, bias_m);
  for (int i = 0; i < e.rows; ++i)
    epilogue_row<kF>(e, at, e.acc + i * e.acc_stride, bias == nullptr ? nullptr : bias + bias_m[i],
                     out + out_m[i]);
}

static inline bool is_adjacent(const int64_t* at, int n) {
  for (int j = 1; j < n; ++j)
    if (at[j] != at[0] + j) return false;
  return true;
}

// `bias` is null where there is none.
template <class Out>
static void epilogue(const EpilogueArgs& e, const Out* bias, Out* out) {
  EpilogueColumns at;
  int64_t out_n = 0, bias_n = 0;
  const bool is_dense = e.c->n.is_linear(kOut, &out_n) && out_n == 1 &&
                        (bias == nullptr || (e.c->n.is_linear(kBias, &bias_n) && bias_n == 1));
  if (is_dense) {
    for (int j = 0; j < e.cols; j += kLanes) at.out[j] = at.bias[j] = e.n0 + j;
  } else {
    e.c->n.offsets(e.n0, e.cols, kOut, at.out);
    at.out_adjacent = is_adjacent(at.out, e.cols);
    if (bias != nullptr) {
      e.c->n.offsets(e.n0, e.cols, kBias, at.bias);
      at.bias_adjacent = is_adjacent(at.bias, e.cols);
    }
  }
  switch (e.c->activation) {
    case Activation::kNone:
      return epilogue_rows<Activation::kNone>(e, at, bias, out);
    case Activation::kRelu:
      return epilogue_rows<Activation::kRelu>(e, at, bias, out);
    case Activation::kGelu:
      return epilogue_rows<Activation::kGelu>(e, at, bias, out);
    case Activation::kSilu:
      return epilogue_rows<Activation::kSilu>(e, at, bias, out);
  }
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
