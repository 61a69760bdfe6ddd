// How a tile program is laid over its iteration space: merged dims, strides, tile sizes.
#pragma once

#include "tegula/base/tensor.h"
#include "tegula/tile/schedule.h"
#include "tegula/tile/space.h"

namespace tegula::kernel {

// All registers of a tile; the rest of a 32 KiB L1 is for the operands.
inline constexpr int64_t kTileBytes = 24 << 10;
// Rows kept between phases, in L2; longer rows are computed again.
inline constexpr int64_t kLongBytes = 128 << 10;
inline constexpr int64_t kMaxTileElements = 2048;
inline constexpr int64_t kMaxTileRows = 64;
inline constexpr int64_t kBlock = 16;  // registers are whole blocks

constexpr int64_t round_to_block(int64_t n) { return (n + kBlock - 1) & -kBlock; }

// One operand over the merged dims. Row operands have inner strides 0, uniform ones all. Without
// initial values: there is room for many operands, and clearing it costs more than small launches.
struct TileView {
  char* data;
  DType dtype;
  int64_t outer_stride[kMaxRank];  // of the geometry's n_outer dims …
  int64_t inner_stride[kMaxRank];  // … and n_inner
  bool is_dense;                   // element (row, col) lies at row·row_len + col
  int64_t low, high;               // bytes from data that it may touch
};

// Rows are counted along the outer dims, columns along the inner dims; both in row-major order.
// The rows of an elementwise program are all its merged dims but the last.
struct TileGeometry {
  tile::Space space;
  int n_outer = 0, n_inner = 0;
  int64_t outer[kMaxRank] = {}, inner[kMaxRank] = {};
  int64_t n_rows = 1, row_len = 1;
  bool is_elementwise = true;
  TileView views[tile::kMaxOperands];  // inputs, then outputs

  const tile::Schedule* schedule = nullptr;
  int64_t tile_rows = 1;
  int64_t tile_cols = 0;  // a multiple of 16, or all of a row
  int64_t tile_pitch = 0;
  int64_t tile_elements = 0;  // what a kTile register holds
  int64_t long_elements = 0;  // what a kLong register holds

  int64_t tiles_per_row_group() const {
    return is_elementwise ? (row_len + tile_cols - 1) / tile_cols : 1;
  }
  int64_t n_tiles() const { return (n_rows + tile_rows - 1) / tile_rows * tiles_per_row_group(); }
};

// Errors: those of space_of.
Status tile_geometry(const tile::Program& p, std::span<const TensorRef> in,
                     std::span<const TensorRef> out, TileGeometry& g);

// The most that registers hold with that schedule, of all spaces nowhere larger than `g`'s.
void most_elements_below(const TileGeometry& g, const tile::Schedule& s, bool is_resident,
                         int64_t& tile_elements, int64_t& long_elements);

}  // namespace tegula::kernel
