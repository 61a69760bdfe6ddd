// Packing: strided operands of any float type into f32 panels [k][width], widened on the way.
#pragma once

#include "tegula/kernels/cpu/common/contraction.h"
#include "tegula/kernels/cpu/isa/vec.h"

namespace tegula::kernel::TEGULA_ISA_NS {

// dst[k·ld + j] = src[lane[j] + k·k_stride] for k in [0, n_k) and j in [0, width). Where ld is a
// multiple of kLanes, the rest of the last vector is 0; else up to kLanes floats past the end of
// the panel are overwritten.
template <class T>
struct PanelArgs {
  const T* src;
  const int64_t* lane;  // element offsets
  int width;            // at most 2·kLanes
  int64_t k_stride;
  int64_t n_k;
  float* dst;
  int ld;
};

// Lanes lie side by side. Rows of k are far apart, so each is read whole, and ahead of its use.
template <class T, int kVectors>
static void pack_adjacent(const PanelArgs<T>& p) {
  const T* src = p.src + p.lane[0];
  float* dst = p.dst;
  const int tail = p.width - (kVectors - 1) * kLanes;
  for (int64_t k = 0; k < p.n_k; ++k, src += p.k_stride, dst += p.ld) {
    __builtin_prefetch(src + 12 * p.k_stride);
#pragma GCC unroll unrolled(2)
    for (int v = 0; v < kVectors - 1; ++v) store(dst + v * kLanes, load(src + v * kLanes));
    const T* last = src + (kVectors - 1) * kLanes;
    store(dst + (kVectors - 1) * kLanes, tail == kLanes ? load(last) : load_n(last, tail));
  }
}

// Strips of kVectors vectors side by side, whole, to panels next_strip floats apart: a row of k is
// read in one run, and ahead of its use.
template <class T, int kVectors, int kStrips>
static void pack_strips(const T* src, int64_t k_stride, int64_t n_k, float* dst,
                        int64_t next_strip) {
  constexpr int kWidth = kVectors * kLanes, kLine = 64 / sizeof(T), kAhead = 4;
  for (int64_t k = 0; k < n_k; ++k, src += k_stride, dst += kWidth) {
#pragma GCC unroll unrolled(8)
    for (int j = 0; j < kStrips * kWidth; j += kLine)
      __builtin_prefetch(src + kAhead * k_stride + j);
#pragma GCC unroll unrolled(8)
    for (int s = 0; s < kStrips; ++s)
#pragma GCC unroll unrolled(2)
      for (int v = 0; v < kVectors; ++v)
        store(dst + s * next_strip + v * kLanes, load(src + s * kWidth + v * kLanes));
  }
}

template <class T>
using PackStripsFn = void (*)(const T*, int64_t k_stride, int64_t n_k, float* dst,
                              int64_t next_strip);

// k lies side by side: square blocks are transposed in registers, lines fetched ahead along k.
template <class T>
static void pack_transposed(const PanelArgs<T>& p) {
  for (int g = 0; g < p.width; g += kLanes) {
    const int n = p.width - g < kLanes ? p.width - g : kLanes;
    const T* row[kLanes];
    for (int j = 0; j < kLanes; ++j) row[j] = p.src + p.lane[g + (j < n ? j : 0)];
    float* dst = p.dst + g;
    constexpr int64_t kLine = 64 / sizeof(T), kAhead = 512 / sizeof(T);
    for (int64_t k = 0; k < p.n_k; k += kLanes) {
      if (k % kLine < kLanes && k + kAhead < p.n_k) {
#pragma GCC unroll unrolled(16)
        for (int j = 0; j < kLanes; ++j) __builtin_prefetch(row[j] + k + kAhead);
      }
      const int n_k = p.n_k - k < kLanes ? static_cast<int>(p.n_k - k) : kLanes;
      Vf r[kLanes];
      if (n_k == kLanes) {
#pragma GCC unroll unrolled(16)
        for (int j = 0; j < kLanes; ++j) r[j] = load(row[j] + k);
      } else {
        for (int j = 0; j < kLanes; ++j) r[j] = load_n(row[j] + k, n_k);
      }
      for (int j = n; j < kLanes; ++j) r[j] = zero();
      transpose(r);
      if (n_k == kLanes) {
#pragma GCC unroll unrolled(16)
        for (int j = 0; j < kLanes; ++j) store(dst + (k + j) * p.ld, r[j]);
      } else {
        for (int j = 0; j < n_k; ++j) store(dst + (k + j) * p.ld, r[j]);
      }
    }
  }
}

template <class T>
static void pack_scattered(const PanelArgs<T>& p) {
  for (int64_t k = 0; k < p.n_k; ++k) {
    for (int j = 0; j < p.width; ++j)
      p.dst[k * p.ld + j] = static_cast<float>(p.src[p.lane[j] + k * p.k_stride]);
    if (p.ld % kLanes == 0)
      for (int j = p.width; j < p.ld; ++j) p.dst[k * p.ld + j] = 0;
  }
}

// Lanes whose k lies side by side to chunks [k / kChunk][lane][kChunk], the last one maybe short; a
// few lines of a row at a time, and the next ones fetched.
template <int kChunk, class T>
static void copy_chunks(const T* src, const int64_t* lane, int width, int64_t n_k, float* dst) {
  constexpr int64_t kRun = 4 * kChunk, kLine = 64 / sizeof(T);
  static_assert(kChunk % kLanes == 0);
  for (int64_t k = 0; k < n_k; k += kRun)
    for (int j = 0; j < width; ++j) {
      const T* from = src + lane[j] + k;
      float* to = dst + k * width + j * kChunk;
      for (int64_t line = kRun; line < 2 * kRun; line += kLine) __builtin_prefetch(from + line);
      for (int64_t i = 0; i < kRun; i += kLanes) {
        float* at = to + i / kChunk * kChunk * width + i % kChunk;
        if (k + i + kLanes <= n_k) {
          store(at, load(from + i));
        } else {
          if (k + i < n_k) store(at, load_n(from + i, static_cast<int>(n_k - k - i)));
          break;
        }
      }
    }
}

// One lane: a conversion.
template <class T>
static void pack_row(const PanelArgs<T>& p) {
  const T* src = p.src + p.lane[0];
  int64_t k = 0;
  for (; k + kLanes <= p.n_k; k += kLanes) store(p.dst + k, load(src + k));
  for (; k < p.n_k; ++k) p.dst[k] = static_cast<float>(src[k]);
}

// The panel of lanes [first, first + width) of `lanes` and k in [k0, k0 + n_k) of `ks`.
template <class T>
static void pack_panel(const T* src, const Loops& lanes, const Loops& ks, Operand operand,
                       int64_t first, int width, int64_t k0, int64_t n_k, float* dst, int ld) {
  if (n_k == 0) return;
  int64_t lane[32];
  lanes.offsets(first, width, operand, lane);
  bool adjacent = true;
  for (int j = 1; j < width; ++j) adjacent = adjacent && lane[j] == lane[0] + j;
  // k runs: within one, the stride is that of the innermost factor.
  int64_t k_stride, run = n_k;
  const bool linear = ks.is_linear(operand, &k_stride);
  if (!linear) {
    const Factor& inner = ks.factors[ks.rank - 1];
    k_stride = inner.stride[operand];
    run = inner.extent - k0 % inner.extent;
  }
  for (int64_t k = 0; k < n_k; k += run, run = linear ? n_k : ks.factors[ks.rank - 1].extent) {
    if (run > n_k - k) run = n_k - k;
    const int64_t k_off = linear ? (k0 + k) * k_stride : ks.offset(k0 + k, operand);
    const PanelArgs<T> p{src + k_off, lane, width, k_stride, run, dst + k * ld, ld};
    if (width == 1 && ld == 1 && k_stride == 1) {
      pack_row(p);
    } else if (adjacent) {
      width <= kLanes ? pack_adjacent<T, 1>(p) : pack_adjacent<T, 2>(p);
    } else if (k_stride == 1) {
      pack_transposed(p);
    } else {
      pack_scattered(p);
    }
  }
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
