// Packing of bf16 operands into AMX's tiles. A tile of a is [16 lanes][32 k]; a tile of b is
// [16 pairs of k][16 lanes][2]. As dwords (pairs of neighbouring k) each is the other transposed.
#pragma once

#include "tegula/kernels/cpu/common/contraction.h"
#include "tegula/kernels/cpu/isa/amx.h"

namespace tegula::kernel::TEGULA_ISA_NS {

enum class TileForm : uint8_t { kA, kB };

using Dwords = int32_t[kTile][kTile];

// 16 × 16 dwords, rows anywhere; dst must not overlap them.
TEGULA_VEC void transpose_dwords(const void* const (&row)[kTile], Dwords& dst) {
  for (int i = 0; i < kTile; i += kLanes)
    for (int j = 0; j < kTile; j += kLanes) {
      Vf r[kLanes];
#pragma GCC unroll unrolled(16)
      for (int l = 0; l < kLanes; ++l)
        r[l] = as_float(loadi(static_cast<const int32_t*>(row[i + l]) + j));
      transpose(r);
#pragma GCC unroll unrolled(16)
      for (int l = 0; l < kLanes; ++l) storei(&dst[j + l][i], bits(r[l]));
    }
}
TEGULA_VEC void transpose_dwords(const Dwords& src, Dwords& dst) {
  const void* row[kTile];
  for (int i = 0; i < kTile; ++i) row[i] = src[i];
  transpose_dwords(row, dst);
}

// dst[j] = (even[j], odd[j]), 16 of them.
TEGULA_VEC void interleave(const void* even, const void* odd, int32_t* dst) {
  for (int j = 0; j < kTile; j += kLanes) {
    const auto* e = static_cast<const bf16*>(even) + j;
    const auto* o = static_cast<const bf16*>(odd) + j;
    storei(dst + j, load_u16(e) | shl<16>(load_u16(o)));
  }
}

// Where the elements of a tile lie: element (lane, k) at src[lane[l] + k_off[k]]; what is past
// n_lanes or n_k is 0 in the tile.
struct TileSource {
  const bf16* src;
  const int64_t* lane;
  const int64_t* k_off;
  int n_lanes, n_k;
  bool lanes_adjacent, k_adjacent;
};

// A tile of 16 lanes whose 32 k lie side by side.
TEGULA_VEC void pack_lanes(const void* const (&row)[kTile], TileForm form, Dwords& dst) {
  if (form == TileForm::kB) return transpose_dwords(row, dst);
#pragma GCC unroll unrolled(16)
  for (int l = 0; l < kTile; ++l)
    for (int j = 0; j < kTile; j += kLanes)
      storei(dst[l] + j, loadi(static_cast<const int32_t*>(row[l]) + j));
}

static void gather_tile(const TileSource& s, Dwords& by_lane) {
  std::memset(by_lane, 0, kTileBytes);
  for (int l = 0; l < s.n_lanes; ++l)
    for (int k = 0; k < s.n_k; ++k)
      reinterpret_cast<bf16*>(by_lane[l])[k] = s.src[s.lane[l] + s.k_off[k]];
}

// dst: 64-byte aligned.
static void pack_tile(const TileSource& s, TileForm form, Dwords& dst) {
  alignas(64) Dwords buffer;
  if (s.k_adjacent) {
    const void* row[kTile];
    const bool whole = s.n_k == kTilePairs;
    if (!whole) std::memset(buffer, 0, sizeof buffer);
    alignas(64) static constexpr int32_t kZeros[kTile] = {};
    for (int l = 0; l < kTile; ++l) {
      row[l] = whole ? static_cast<const void*>(s.src + s.lane[l < s.n_lanes ? l : 0] + s.k_off[0])
                     : buffer[l];
      if (l >= s.n_lanes) {
        row[l] = kZeros;
      } else if (!whole) {
        std::memcpy(buffer[l], s.src + s.lane[l] + s.k_off[0],
                    static_cast<size_t>(s.n_k) * sizeof(bf16));
      }
    }
    return pack_lanes(row, form, dst);
  }
  if (s.lanes_adjacent && s.n_lanes == kTile) {
    Dwords& pairs = form == TileForm::kB ? dst : buffer;
    alignas(64) static constexpr bf16 kZeros[kTile] = {};
    const bf16* at = s.src + s.lane[0];
    for (int p = 0; p < kTile; ++p)
      interleave(2 * p < s.n_k ? at + s.k_off[2 * p] : kZeros,
                 2 * p + 1 < s.n_k ? at + s.k_off[2 * p + 1] : kZeros, pairs[p]);
    if (form == TileForm::kA) transpose_dwords(buffer, dst);
    return;
  }
  if (form == TileForm::kA) return gather_tile(s, dst);
  gather_tile(s, buffer);
  transpose_dwords(buffer, dst);
}

// Stores drain in order, so a line that is not there holds up all after it.
TEGULA_VEC void fetch_to_write(const void* line) { __builtin_prefetch(line, 1); }
// From line `at` of a tile of a strip to the one eight stores on.
constexpr int64_t line_ahead(int at) { return (at < 8 ? 8 : 8 + kTile) * 64; }

// A tile's pairs of rows of k (k_stride apart), of kStrips strips of 32 adjacent lanes side by
// side: f(pair, strip, even, odd, line), the line in the strip's first tile, strips next_strip
// bytes apart. A row is read in one run, and fetched kAhead rows ahead.
template <int kStrips, int kAhead, class F>
TEGULA_VEC void each_pair_of_rows(const bf16* src, int64_t k_stride, char* dst, int64_t next_strip,
                                  F&& f) {
  for (int p = 0; p < kTile; ++p, src += 2 * k_stride) {
    const bf16* odd = src + k_stride;
#pragma GCC unroll unrolled(8)
    for (int s = 0; s < kStrips; ++s) {
      __builtin_prefetch(src + kAhead * k_stride + s * kStrip);
      __builtin_prefetch(odd + kAhead * k_stride + s * kStrip);
      f(p, s, src + s * kStrip, odd + s * kStrip, dst + s * next_strip + p * 64);
    }
  }
}

// Whole tiles of b: n_k tiles of k.
template <int kStrips>
static void pack_runs(const bf16* src, int64_t k_stride, int64_t n_k, char* dst,
                      int64_t next_strip) {
  for (; n_k > 0; --n_k, src += kTilePairs * k_stride, dst += 2 * kTileBytes)
    each_pair_of_rows<kStrips, 8>(
        src, k_stride, dst, next_strip,
        [](int p, int, const bf16* even, const bf16* odd, char* line) {
          fetch_to_write(line + line_ahead(p)), fetch_to_write(line + kTileBytes + line_ahead(p));
          auto* to = reinterpret_cast<int32_t*>(line);
          interleave(even, odd, to), interleave(even + kTile, odd + kTile, to + kTileBytes / 4);
        });
}

// The same to tiles of a: a tile's pairs of k are put side by side first, then transposed.
template <int kStrips>
static void pack_runs_across(const bf16* src, int64_t k_stride, int64_t n_k, char* dst,
                             int64_t next_strip) {
  alignas(64) Dwords pairs[2 * kStrips];
  for (; n_k > 0; --n_k, src += kTilePairs * k_stride, dst += 2 * kTileBytes) {
    each_pair_of_rows<kStrips, 16>(
        src, k_stride, dst, next_strip,
        [&](int p, int s, const bf16* even, const bf16* odd, char* line) {
          fetch_to_write(line), fetch_to_write(line + kTileBytes);
          interleave(even, odd, pairs[2 * s][p]);
          interleave(even + kTile, odd + kTile, pairs[2 * s + 1][p]);
        });
    for (int i = 0; i < 2 * kStrips; ++i)
      transpose_dwords(pairs[i],
                       *reinterpret_cast<Dwords*>(dst + i / 2 * next_strip + i % 2 * kTileBytes));
  }
}

// n_k tiles of k of a strip whose lanes lie lane_stride apart, its k adjacent.
static void pack_rows(const bf16* src, int64_t lane_stride, int64_t n_k, TileForm form, char* dst,
                      int64_t k_bytes) {
  for (; n_k > 0; --n_k, src += kTilePairs, dst += k_bytes)
    for (int l = 0; l < kStrip; l += kTile) {
      auto& tile = *reinterpret_cast<Dwords*>(dst + l / kTile * kTileBytes);
      const void* row[kTile];
#pragma GCC unroll unrolled(16)
      for (int i = 0; i < kTile; ++i) {
        const bf16* at = src + (l + i) * lane_stride;
        __builtin_prefetch(at + 2 * kTilePairs);
        row[i] = at;
      }
      pack_lanes(row, form, tile);
    }
}

// A strip of n_k whole tiles of k; false where neither lanes nor k are adjacent.
static inline bool pack_by_strides(const bf16* src, int64_t lane_stride, int64_t k_stride,
                                   int64_t n_k, TileForm form, char* dst, int64_t k_bytes) {
  if (k_stride == 1) {
    pack_rows(src, lane_stride, n_k, form, dst, k_bytes);
  } else if (lane_stride == 1 && (n_k == 1 || k_bytes == 2 * kTileBytes)) {
    form == TileForm::kB ? pack_runs<1>(src, k_stride, n_k, dst, 0)
                         : pack_runs_across<1>(src, k_stride, n_k, dst, 0);
  } else {
    return false;
  }
  return true;
}

// Rows of lanes or of k lie far apart: each is fetched two tiles ahead.
static inline void fetch_tile(const bf16* src, const int64_t* lane, int n_lanes, bool k_adjacent,
                              const Loops& ks, Operand operand, int64_t k, int n_k) {
  int64_t k_off[kTilePairs];
  ks.offsets(k, k_adjacent ? 1 : n_k, operand, k_off);
  const int rows = k_adjacent ? n_lanes : n_k;
  for (int i = 0; i < rows; ++i)
    __builtin_prefetch(src + (k_adjacent ? lane[i] + k_off[0] : lane[0] + k_off[i]));
}

// Tiles of up to 32 lanes [lane0, lane0 + n_lanes) and k in [k0, k0 + n_k): for each 32 k two tiles
// of 16 lanes (the second only where there are more than 16), k_bytes from one 32 k to the next.
static void pack_tiles(const bf16* src, const Loops& lanes, const Loops& ks, Operand operand,
                       int64_t lane0, int n_lanes, int64_t k0, int64_t n_k, TileForm form,
                       char* dst, int64_t k_bytes = 2 * kTileBytes) {
  int64_t lane_stride, k_stride;
  if (n_lanes == kStrip && n_k >= kTilePairs && lanes.is_linear(operand, &lane_stride) &&
      ks.is_linear(operand, &k_stride)) {
    const int64_t whole = n_k / kTilePairs;
    const bf16* at = src + lane0 * lane_stride + k0 * k_stride;
    if (pack_by_strides(at, lane_stride, k_stride, whole, form, dst, k_bytes)) {
      k0 += whole * kTilePairs, n_k -= whole * kTilePairs, dst += whole * k_bytes;
      if (n_k == 0) return;
    }
  }
  int64_t lane[kStrip], k_off[kTilePairs];
  lanes.offsets(lane0, n_lanes, operand, lane);
  bool lanes_adjacent = true;
  for (int l = 1; l < n_lanes; ++l) lanes_adjacent = lanes_adjacent && lane[l] == lane[0] + l;
  for (int64_t k = 0; k < n_k; k += kTilePairs, dst += k_bytes) {
    const int n = static_cast<int>(n_k - k < kTilePairs ? n_k - k : kTilePairs);
    ks.offsets(k0 + k, n, operand, k_off);
    bool k_adjacent = true;
    for (int i = 1; i < n; ++i) k_adjacent = k_adjacent && k_off[i] == k_off[0] + i;
    constexpr int64_t kAhead = 2 * kTilePairs;
    if ((k_adjacent || lanes_adjacent) && k + kAhead + kTilePairs <= n_k)
      fetch_tile(src, lane, n_lanes, k_adjacent, ks, operand, k0 + k + kAhead, kTilePairs);
    for (int l = 0; l < n_lanes; l += kTile) {
      const int left = n_lanes - l < kTile ? n_lanes - l : kTile;
      pack_tile({src, lane + l, k_off, left, n, lanes_adjacent, k_adjacent}, form,
                *reinterpret_cast<Dwords*>(dst + l / kTile * kTileBytes));
    }
  }
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
