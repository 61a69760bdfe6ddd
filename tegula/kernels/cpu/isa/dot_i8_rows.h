// Shared by the kernels of dot_i8: rows of x, panels of weights, and the end of a sum.
#pragma once

#include "tegula/kernels/cpu/common/dot_i8_plan.h"
#include "tegula/kernels/cpu/common/workspace.h"
#include "tegula/kernels/cpu/isa/quads.h"

namespace tegula::kernel::TEGULA_ISA_NS {

// Rows of x and weights that lie in tiles are [tile][16 rows][64 bytes]; kTiles: rows of x do,
// too.
inline constexpr int64_t kTileBytes64 = 1024;

template <bool kVnni, bool kTiles>
class I8Call {
 public:
  using Dot = QuadDot<kVnni>;

  explicit I8Call(const KernelCall& call)
      : call(call),
        p(*call.attrs, call.in),
        w(p),
        held(round_up(p.e, kI8Pad) / 4),
        quads(kTiles ? held : ceil_div(p.e, 4)),
        more(static_cast<char*>(call.workspace) + w.more_at),
        sums_(reinterpret_cast<int32_t*>(static_cast<char*>(call.workspace) + w.sums_at)) {}

  // Row m of x in group g; of tiles: two tiles of rows from a multiple of 32 on, k after k.
  char* x_row(int64_t m, int64_t g) const {
    auto* x = static_cast<char*>(call.workspace);
    if (!kTiles) return x + m * w.row_bytes + g * held * Dot::kBytes;
    return x + (m / 32 * p.groups + g) * held * 4 * 32 + m % 32 * 64;
  }
  // Minus the offset of weights times the sum of row m of x over group g.
  int32_t start(int64_t m, int64_t g) const { return sums_[m * p.groups + g]; }

  void pack_x() const {
    call.pool->parallel_for(p.m, [&](int64_t m, int) {
      const TensorRef& x = call.in[0];
      const auto* src = static_cast<const int8_t*>(x.data) + m * x.stride[0];
      for (int64_t g = 0; g < p.groups; ++g) {
        const int32_t sum = pack_row(src + g * p.e, x_row(m, g));
        sums_[m * p.groups + g] = sum * (p.is_four ? -8 : -128);
      }
    });
  }

  // Pointers to the rows of bytes of `n` quads from quad q of group g on; past the group's end
  // (where x is 0) to its last.
  void rows_of(int64_t g, int64_t q, int64_t n, const uint8_t** row) const {
    const TensorRef& t = call.in[2];
    const int64_t per = p.is_four ? 2 : 1, group = p.e / per, step = 4 / per;
    for (int64_t i = 0; i < n * step; ++i)
      row[i] = static_cast<const uint8_t*>(t.data) +
               (g * group + std::min(q * step + i, group - 1)) * t.stride[0];
  }

  // y = fma(sum, scale, y), y from 0 in the first group; times sx in the last. Columns are
  // interleaved; cols of them are stored.
  __attribute__((always_inline)) void finish(Vi (&s)[4], int64_t m, int64_t g, int64_t n0,
                                             int64_t cols) const {
    const TensorRef &y = call.out[0], &scale = call.in[3], &sx = call.in[1];
    float* to = y.as<float>() + m * y.stride[0] + n0;
    const float* by = scale.as<const float>() + g * scale.stride[0] + n0;
    const Vf last = set1(sx.as<const float>()[m * sx.stride[0]]);
    unpermute(s);
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      const int64_t j = v * kLanes;
      const int n = static_cast<int>(std::clamp<int64_t>(cols - j, 0, kLanes));
      const bool whole = n == kLanes;
      Vf sum = g == 0 ? zero() : whole ? load(to + j) : load_n(to + j, n);
      sum = fma(to_float(s[v]), whole ? load(by + j) : load_n(by + j, n), sum);
      if (g + 1 == p.groups) sum = sum * last;
      whole ? store(to + j, sum) : store_n(to + j, sum, n);
    }
  }

  int64_t strip_bytes() const { return p.groups * held * 4 * kQuadColumns; }
  // Where vector v of quad q of a strip lies.
  static int64_t panel_at(int64_t q, int v) {
    return q / 16 * (64 * kQuadColumns) + v * kLanes / 16 * kTileBytes64 + q % 16 * 64 +
           v * kLanes % 16 * 4;
  }

  // Calls block(panels, strip, strips, m0, rows) for blocks of rows and strips of columns, on the
  // pool: as large as rows stay in L2, small enough that every thread has some.
  template <class F>
  void for_each_block(int64_t block_m, F block) const {
    const int64_t strips = ceil_div(p.n, kQuadColumns);
    const int64_t most = std::max<int64_t>(1, w.panel_bytes / std::max<int64_t>(64, strip_bytes()));
    auto* panels = reinterpret_cast<uint8_t*>(more);
    for (int64_t first = 0; first < strips; first += most) {
      const int64_t here = std::min(most, strips - first);
      pack(panels, first, here);
      int64_t rows = block_m, wide = 256 / kQuadColumns;
      const auto tasks = [&] { return ceil_div(here, wide) * ceil_div(p.m, rows); };
      while (wide > 1 && tasks() < 4 * call.pool->n_threads()) wide /= 2;
      while (rows > 32 && tasks() < 4 * call.pool->n_threads()) rows = round_up(rows / 2, 32);
      const int64_t across = ceil_div(here, wide);
      call.pool->parallel_for(tasks(), [&](int64_t i, int) {
        const int64_t m0 = i / across * rows, s = i % across * wide;
        block(panels + s * strip_bytes(), first + s, std::min(wide, here - s), m0,
              std::min(rows, p.m - m0));
      });
    }
  }

  const KernelCall& call;
  const I8Problem p;
  const I8Workspace w;
  const int64_t held;   // quads of a group that there is room for
  const int64_t quads;  // of a group
  char* const more;     // the rest of the workspace

 private:
  // Runs of rows over a few strips, so that memory is read in lines that follow one another.
  static constexpr int64_t kPackQuads = 16, kPackStrips = 8;

  // One group of a row, padded with zeros; its sum.
  int32_t pack_row(const int8_t* src, char* dst) const {
    int32_t sum = 0;
    if constexpr (!kVnni) {
      for (int64_t q = 0; q < quads; ++q, dst += Dot::kBytes) {
        int8_t four[4] = {};
        const int64_t n = std::min<int64_t>(p.e - 4 * q, 4);
        for (int64_t i = 0; i < n; ++i) sum += four[i] = src[4 * q + i];
        Dot::pack(four, dst);
      }
      return sum;
    }
    Vi lanes = set1i(0);
    for (int64_t k = 0; k < p.e; k += 64, dst += kTiles ? 2 * kTileBytes64 : 64) {
      const int64_t n = std::min<int64_t>(p.e - k, 64);
      std::memcpy(dst, src + k, static_cast<size_t>(n));
      if (n < 64) std::memset(dst + n, 0, static_cast<size_t>(64 - n));
      for (int i = 0; i < 64; i += 4 * kLanes)
        lanes = lanes + sum_bytes(load_bytes(reinterpret_cast<const uint8_t*>(dst) + i));
    }
    int32_t each[kLanes];
    storei(each, lanes);
    for (const int32_t x : each) sum += x;
    return sum;
  }
  // Sums of signed bytes, four to a lane.
  TEGULA_VEC Vi sum_bytes(Vi x) {
    const Vi u = x ^ set1i(INT32_MIN + 0x808080), low = set1i(0x00ff00ff), one = set1i(0x00010001);
    return madd16(u & low, one) + madd16(shr<8>(u) & low, one) - set1i(4 * 128);
  }

  void pack(uint8_t* panels, int64_t first, int64_t strips) const {
    const int64_t units = ceil_div(quads, kPackQuads), wide = ceil_div(strips, kPackStrips);
    call.pool->parallel_for(p.groups * units * wide, [&](int64_t i, int) {
      const int64_t g = i / wide / units, q0 = i / wide % units * kPackQuads;
      const int64_t begin = i % wide * kPackStrips, end = std::min(begin + kPackStrips, strips);
      for (int64_t q = q0; q < std::min(q0 + kPackQuads, quads); ++q) {
        const uint8_t* row[4];
        rows_of(g, q, 1, row);
        for (int64_t s = begin; s < end; ++s)
          pack_quad(row, (first + s) * kQuadColumns, g * held + q, panels + s * strip_bytes());
      }
    });
  }
  void pack_quad(const uint8_t* const* row, int64_t n0, int64_t q, uint8_t* panel) const {
    uint8_t edge[4][kQuadColumns] = {};
    const uint8_t* at[4] = {};
    const int n = p.is_four ? 2 : 4;
    for (int i = 0; i < n; ++i) {
      at[i] = row[i] + n0;
      if (p.n - n0 < kQuadColumns)
        at[i] = static_cast<uint8_t*>(std::memcpy(edge[i], at[i], static_cast<size_t>(p.n - n0)));
    }
    Vi b[4];
    p.is_four ? load_quads<true>(at, 0, b) : load_quads<false>(at, 0, b);
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) std::memcpy(panel + panel_at(q, v), &b[v], sizeof b[v]);
  }

  int32_t* const sums_;
};

static inline void count_i8(const KernelCall& call, const I8Problem& p) {
  const int64_t flops = p.m * p.n * (2 * p.k + 2 * p.groups + 1);
  call.counters->add(flops, flops);
}
// No groups: the chain is its beginning.
static inline void zero_i8(const KernelCall& call, const I8Problem& p) {
  const TensorRef &y = call.out[0], &sx = call.in[1];
  for (int64_t m = 0; m < p.m; ++m)
    std::fill_n(y.as<float>() + m * y.stride[0], p.n,
                0.0F * sx.as<const float>()[m * sx.stride[0]]);
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
