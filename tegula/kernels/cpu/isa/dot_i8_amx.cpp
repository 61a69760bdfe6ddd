// y = sx (x q) scale in integers, in AMX's tiles: 16 rows by 16 columns, 64 of k at a time.
#include "tegula/kernels/cpu/isa/amx.h"
#include "tegula/kernels/cpu/isa/dot_i8_rows.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel::TEGULA_ISA_NS {

namespace {
constexpr int64_t kBlockM = 256;  // rows of a task

// Tiles hold what VPDPBUSD reads: rows of bytes of x, and quads of weights.
using Call = I8Call<true, true>;

class TiledI8 {
 public:
  explicit TiledI8(const Call& c) : c_(c) {}

  void run() const {
    c_.for_each_block(kBlockM, [&](const uint8_t* panel, int64_t strip, int64_t strips, int64_t m0,
                                   int64_t rows) {
      Tiles t;
      for (int64_t s = 0; s < strips; ++s, panel += c_.strip_bytes())
        for (int64_t m = m0; m < m0 + rows; m += kStrip)
          block(t, reinterpret_cast<const char*>(panel), m,
                static_cast<int>(std::min<int64_t>(kStrip, m0 + rows - m)),
                (strip + s) * kQuadColumns);
    });
  }

 private:
  static constexpr int64_t kStep = 64 * kQuadColumns;  // of weights, for 64 of k

  // 32 rows by a strip.
  void block(Tiles& t, const char* panel, int64_t m, int rows, int64_t n0) const {
    alignas(64) int32_t sums[kStrip * kQuadColumns];
    const int64_t cols = std::min<int64_t>(kQuadColumns, c_.p.n - n0);
    for (int64_t g = 0; g < c_.p.groups; ++g, panel += c_.held / 16 * kStep) {
      for (int half = 0; half < kQuadColumns / kTile; half += 2)
        products(t, c_.x_row(m, g), panel + half * kTileBytes, sums + half * kTile);
      for (int i = 0; i < rows; ++i) finish_row(sums + i * kQuadColumns, m + i, g, n0, cols);
    }
  }

  // Two by two tiles of sums.
  void products(Tiles& t, const char* x, const char* b, int32_t* sums) const {
    clear_sums<2, 2>(t);
    for (int64_t q = 0; q < c_.held; q += 16, x += 2 * kTileBytes, b += kStep) {
      t.load<6>(b, 64);
      t.load<4>(x, 64);
      t.dot_bytes<0, 4, 6>();
      t.load<7>(b + kTileBytes, 64);
      t.dot_bytes<1, 4, 7>();
      t.load<5>(x + kTileBytes, 64);
      t.dot_bytes<2, 5, 6>();
      t.dot_bytes<3, 5, 7>();
    }
    store_sums<2, 2>(t, reinterpret_cast<float*>(sums), kQuadColumns);
  }

  void finish_row(const int32_t* sums, int64_t m, int64_t g, int64_t n0, int64_t cols) const {
    Vi s[4];
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) s[v] = loadi(sums + v * kLanes) + set1i(c_.start(m, g));
    c_.finish(s, m, g, n0, cols);
  }

  const Call& c_;
};
}  // namespace

void dot_i8_amx(const KernelCall& call) {
  const I8Problem p(*call.attrs, call.in);
  claim_workspace(call, I8Workspace(p).bytes(call.pool->n_threads()));
  count_i8(call, p);
  if (p.m == 0 || p.n == 0) return;
  if (p.groups == 0) return zero_i8(call, p);
  const Call c(call);
  c.pack_x();
  TiledI8(c).run();
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
