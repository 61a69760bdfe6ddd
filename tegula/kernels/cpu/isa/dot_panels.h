// Panels of dot_packed's operands: which rows or columns, which k, in which layout.
#pragma once

#include <type_traits>

#include "tegula/base/algorithm.h"
#include "tegula/kernels/cpu/isa/dot_loops.h"
#include "tegula/kernels/cpu/isa/dot_micro.h"
#include "tegula/kernels/cpu/isa/pack_pairs.h"

namespace tegula::kernel::TEGULA_ISA_NS {

// Panels are packed kPackStrips at a time, kPackK rows of k after another: rows of k are then
// read in runs, not one cache line each.
inline constexpr int64_t kPackStrips = 4, kPackK = 64;

// Packs panels of f32; kPairs: k counts pairs, bf16's two neighbours in a float's place.
template <class In, bool kPairs>
class PanelPacker {
  static constexpr int64_t kPerStep = kPairs ? 2 : 1;  // k

 public:
  // Strips of a have tile_m rows; is_chunked: they lie in chunks of k, where k is side by side.
  PanelPacker(const Contraction& c, const In* a, const In* b, int tile_m, bool is_chunked)
      : c_(c), a_(a), b_(b), tile_m_(tile_m), is_chunked_(is_chunked) {}

  // Floats of a strip of a and n_k of k.
  int64_t a_floats(int64_t n_k) const { return tile_m_ * n_k + kChunkSlack; }

  // Rows [m0, m0 + m) of a and k in [k0, k0 + n_k), to panels of n_k.
  void pack_a(const Held& h, int64_t batch, int64_t m0, int64_t m, int64_t k0, int64_t n_k,
              float* dst) const {
    const In* a = a_ + c_.batch.offset(h.batch0 + batch, kA);
    if (is_chunked_) {
      for (int64_t i = 0; i < m; i += tile_m_) {
        const int rows = static_cast<int>(std::min<int64_t>(tile_m_, m - i));
        int64_t lane[kTileM];
        c_.m.offsets(h.m0 + m0 + i, rows, kA, lane);
        float* to = dst + i / tile_m_ * a_floats(n_k);
        if constexpr (kPairs) {
          for (int j = 0; j < rows; ++j) lane[j] /= 2;
          copy_chunks<kChunk>(reinterpret_cast<const Pair*>(a) + k0, lane, rows, n_k, to);
        } else {
          copy_chunks<kChunk>(a + k0, lane, rows, n_k, to);
        }
      }
      return;
    }
    for (int64_t k = 0; k < n_k; k += kPackK) {
      for (int64_t i = 0; i < m; i += tile_m_) {
        const int rows = static_cast<int>(std::min<int64_t>(tile_m_, m - i));
        pack_lanes(a, c_.m, kA, h.m0 + m0 + i, rows, k0 + k, std::min(kPackK, n_k - k),
                   dst + i / tile_m_ * a_floats(n_k) + k * rows, rows);
      }
    }
  }

  // Strips [begin, end) of b and k in [k0, k0 + n_k), to panels of panel_k rows.
  void pack_b(const Held& h, int64_t batch, int64_t begin, int64_t end, int64_t k0, int64_t n_k,
              float* dst, int64_t panel_k) const {
    const In* b = b_ + c_.batch.offset(h.batch0 + batch, kB);
    int64_t n_stride, k_stride;
    if (end * kTileN <= h.n && c_.n.is_linear(kB, &n_stride) && n_stride == 1 &&
        c_.k.is_linear(kB, &k_stride)) {
      const In* src = b + h.n0 + begin * kTileN + k0 * k_stride;
      return strips_fn(end - begin)(src, k_stride / kPerStep, n_k, dst, panel_k * kTileN);
    }
    for (int64_t k = 0; k < n_k; k += kPackK) {
      for (int64_t strip = begin; strip < end; ++strip) {
        const int cols = static_cast<int>(std::min<int64_t>(kTileN, h.n - strip * kTileN));
        pack_lanes(b, c_.n, kB, h.n0 + strip * kTileN, cols, k0 + k, std::min(kPackK, n_k - k),
                   dst + ((strip - begin) * panel_k + k) * kTileN, kTileN);
      }
    }
  }

 private:
  void pack_lanes(const In* src, const Loops& lanes, Operand operand, int64_t first, int width,
                  int64_t k0, int64_t n_k, float* dst, int ld) const {
    if constexpr (kPairs) {
      int64_t step = 0;
      c_.k.is_linear(operand, &step);
      pack_pairs(src, lanes, step / 2, operand, first, width, k0, n_k, dst, ld);
    } else {
      pack_panel(src, lanes, c_.k, operand, first, width, k0, n_k, dst, ld);
    }
  }
  // The function for so many whole strips, at most kPackStrips.
  static PackStripsFn<In> strips_fn(int64_t strips) {
    if constexpr (kPairs) {
      constexpr PackStripsFn<In> kPack[] = {
          pack_pair_strips<kTileNv, 1>, pack_pair_strips<kTileNv, 2>, pack_pair_strips<kTileNv, 3>,
          pack_pair_strips<kTileNv, kPackStrips>};
      return kPack[strips - 1];
    } else {
      constexpr PackStripsFn<In> kPack[] = {
          pack_strips<In, kTileNv, 1>, pack_strips<In, kTileNv, 2>, pack_strips<In, kTileNv, 3>,
          pack_strips<In, kTileNv, kPackStrips>};
      return kPack[strips - 1];
    }
  }

  const Contraction& c_;
  const In *const a_, *const b_;
  const int tile_m_;
  const bool is_chunked_;
};

}  // namespace tegula::kernel::TEGULA_ISA_NS
