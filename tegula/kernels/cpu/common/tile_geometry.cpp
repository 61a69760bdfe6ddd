#include "tegula/kernels/cpu/common/tile_geometry.h"

#include "tegula/base/algorithm.h"

namespace tegula::kernel {

namespace {

using tile::Extent;
using tile::Program;
using tile::Schedule;

// Strides over the iteration space: 0 where the operand does not move.
struct Strides {
  int64_t at[kMaxRank];
};

void set_strides(Strides& s, const TensorRef& t, Extent extent, int rank, int n_inner) {
  for (int d = 0; d < rank; ++d) {
    const bool moves = extent == Extent::kFull || (extent == Extent::kRow && d < rank - n_inner);
    s.at[d] = !moves || t.shape[d] == 1 ? 0 : t.stride[d];
  }
}

// Merges dims [begin, end) of the space where every operand steps evenly through two of them.
int merge(const tile::Space& space, int begin, int end, std::span<const Strides> strides,
          int64_t* extent, TileView* views, int64_t (TileView::*to)[kMaxRank]) {
  int n = 0;
  for (int d = begin; d < end; ++d) {
    if (space.shape[d] == 1) continue;
    bool merges = n > 0;
    for (size_t k = 0; merges && k < strides.size(); ++k)
      merges = (views[k].*to)[n - 1] == strides[k].at[d] * space.shape[d];
    if (merges) {
      extent[n - 1] *= space.shape[d];
    } else {
      extent[n++] = space.shape[d];
    }
    for (size_t k = 0; k < strides.size(); ++k) (views[k].*to)[n - 1] = strides[k].at[d];
  }
  return n;
}

void describe(TileGeometry& g, TileView& v) {
  int64_t expect = 1, low = 0, high = 0;
  v.is_dense = true;
  const auto dim = [&](int64_t extent, int64_t stride) {
    v.is_dense &= stride == expect;
    expect *= extent;
    (stride < 0 ? low : high) += (extent - 1) * stride;
  };
  for (int d = g.n_inner - 1; d >= 0; --d) dim(g.inner[d], v.inner_stride[d]);
  for (int d = g.n_outer - 1; d >= 0; --d) dim(g.outer[d], v.outer_stride[d]);
  v.low = low * size_bytes(v.dtype);
  v.high = (high + 1) * size_bytes(v.dtype);
}

// Is some operand contiguous along the last outer dim, but not along the rows?
bool is_transposed(const TileGeometry& g, size_t n_views) {
  if (g.n_outer == 0 || g.n_inner == 0) return false;
  for (size_t k = 0; k < n_views; ++k) {
    const int64_t col = g.views[k].inner_stride[g.n_inner - 1];
    if (col != 0 && col != 1 && g.views[k].outer_stride[g.n_outer - 1] == 1) return true;
  }
  return false;
}

void size_elementwise(TileGeometry& g, const Program& p, size_t n_views) {
  g.schedule = p.resident.get();
  const int64_t bytes = std::max(g.schedule->tile_bytes, 1);
  const int64_t fits = std::clamp(kTileBytes / bytes / kBlock * kBlock, kBlock, kMaxTileElements);
  if (g.row_len >= fits) {
    g.tile_cols = fits;
    if (is_transposed(g, n_views) && fits >= 16 * kBlock) {
      g.tile_rows = std::min<int64_t>(g.n_rows, fits >= 64 * kBlock ? 32 : 16);
      g.tile_cols = fits / g.tile_rows / kBlock * kBlock;
    }
  } else {
    g.tile_cols = g.row_len;
    g.tile_rows = std::min(g.n_rows, fits / g.row_len);
  }
  g.tile_pitch = g.tile_cols;
  g.tile_elements = round_to_block(g.tile_rows * g.tile_pitch);
}

void size_rows(TileGeometry& g, const Program& p) {
  const int64_t pitch = round_to_block(g.row_len);
  const Schedule& resident = *p.resident;
  const int64_t row_bytes =
      std::max<int64_t>((resident.tile_bytes + resident.long_bytes) * pitch, 1);
  g.schedule = &resident;
  if (row_bytes <= kTileBytes || g.row_len <= kBlock) {
    // Short rows: whole rows in a tile, several of them.
    g.tile_rows = std::clamp<int64_t>(std::min(kTileBytes / row_bytes, g.n_rows), 1, kMaxTileRows);
    g.tile_cols = g.row_len;
    g.tile_pitch = pitch;
    g.tile_elements = g.long_elements = g.tile_rows * pitch;
    return;
  }
  if (resident.long_bytes * pitch > kLongBytes) {
    g.schedule = p.streamed.get();
  } else {
    g.long_elements = pitch;
  }
  const int64_t bytes = std::max(g.schedule->tile_bytes, 1);
  g.tile_cols = std::clamp(kTileBytes / bytes / kBlock * kBlock, kBlock, kMaxTileElements);
  g.tile_cols = std::min(g.tile_cols, pitch);
  g.tile_pitch = g.tile_elements = g.tile_cols;
}

}  // namespace

void most_elements_below(const TileGeometry& g, const Schedule& s, bool is_resident,
                         int64_t& tile_elements, int64_t& long_elements) {
  const int64_t pitch = round_to_block(g.row_len);
  const int64_t fits = std::clamp(kTileBytes / std::max<int64_t>(s.tile_bytes, 1) / kBlock * kBlock,
                                  kBlock, kMaxTileElements);
  long_elements = 0;
  if (g.is_elementwise) {  // any split of its elements into rows and columns
    tile_elements = std::min(fits, round_to_block(g.n_rows * g.row_len));
    return;
  }
  tile_elements = std::min(fits, pitch);
  if (!is_resident) return;
  const int64_t both = std::max<int64_t>(s.tile_bytes + s.long_bytes, 1);
  const int64_t short_rows =  // several short rows in a tile, or one of at most a block
      std::max(std::min({kTileBytes / both, g.n_rows * pitch, kMaxTileRows * pitch}), kBlock);
  const int64_t kept = s.long_bytes == 0 ? pitch : std::min(pitch, kLongBytes / s.long_bytes);
  tile_elements = std::max(tile_elements, short_rows);
  long_elements = std::max(short_rows, kept);
}

Status tile_geometry(const Program& p, std::span<const TensorRef> in,
                     std::span<const TensorRef> out, TileGeometry& g) {
  TEGULA_CHECK(p.resident && p.streamed, "the program is not sealed");
  g.space = TEGULA_TRY(tile::space_of(p, in, out));
  const size_t n_views = in.size() + out.size();
  Strides strides[tile::kMaxOperands];
  for (size_t k = 0; k < n_views; ++k) {
    const bool is_in = k < in.size();
    const TensorRef& t = is_in ? in[k] : out[k - in.size()];
    const Extent extent = is_in ? p.inputs[k].extent : p.outputs[k - in.size()].extent;
    g.views[k].data = static_cast<char*>(t.data);
    g.views[k].dtype = t.dtype;
    set_strides(strides[k], t, extent, p.rank, p.n_inner);
  }
  const std::span<const Strides> all(strides, n_views);
  const int split = p.rank - p.n_inner;
  g.is_elementwise = p.n_inner == 0;
  g.n_outer = merge(g.space, 0, split, all, g.outer, g.views, &TileView::outer_stride);
  if (g.is_elementwise) {
    // The last merged dim becomes the row.
    if (g.n_outer > 0) {
      g.n_inner = 1;
      g.inner[0] = g.outer[--g.n_outer];
      for (size_t k = 0; k < n_views; ++k)
        g.views[k].inner_stride[0] = g.views[k].outer_stride[g.n_outer];
    }
  } else {
    g.n_inner = merge(g.space, split, p.rank, all, g.inner, g.views, &TileView::inner_stride);
  }
  for (int d = 0; d < g.n_outer; ++d) g.n_rows *= g.outer[d];
  for (int d = 0; d < g.n_inner; ++d) g.row_len *= g.inner[d];
  for (size_t k = 0; k < n_views; ++k) describe(g, g.views[k]);
  if (g.n_rows == 0 || (g.is_elementwise && g.row_len == 0)) {
    g.schedule = p.resident.get();
    g.n_rows = 0, g.tile_cols = kBlock;
    return {};
  }
  g.is_elementwise ? size_elementwise(g, p, n_views) : size_rows(g, p);
  return {};
}

}  // namespace tegula::kernel
