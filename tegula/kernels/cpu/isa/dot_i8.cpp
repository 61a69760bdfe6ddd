// y = sx (x q) scale in integers, in vectors. Few rows: weights are read in long runs and used out
// of registers, sums wait in cache. Many: quads in panels by VPDPBUSD, or isa/dot_i8_packed.h.
#include "tegula/kernels/cpu/isa/dot_i8_packed.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel::TEGULA_ISA_NS {

namespace {
#if defined(TEGULA_ISA_AVX512)
constexpr int kThinM = 4;  // rows whose sums fit the registers
#else
constexpr int kThinM = 2;
#endif
constexpr int64_t kRunQuads = 4;  // between a load and a store of a sum

template <bool kVnni, bool kFour>
class Thin {
 public:
  using Call = I8Call<kVnni, false>;
  explicit Thin(const Call& c) : c_(c) {}

  // Very few rows: a task is a part of k over all columns, long runs of memory, and its sums are
  // added up afterwards. Else there would be too many sums.
  void run() const {
    const I8Problem& p = c_.p;
    const I8Parts parts(p);
    if (parts.count == 0) return run_columns();
    const int64_t wide = std::min(p.n, kI8ThinColumns), blocks = ceil_div(p.n, wide);
    auto* sums = reinterpret_cast<int32_t*>(c_.more);
    c_.call.pool->parallel_for(parts.count * blocks, [&](int64_t i, int) {
      const int64_t part = i / blocks, n0 = i % blocks * wide, cols = std::min(wide, p.n - n0);
      const int64_t g = part / parts.per_group, q = part % parts.per_group * parts.quads;
      sum(g, q, std::min(c_.quads, q + parts.quads), n0, cols, sums + part * p.m * parts.row + n0,
          parts.row);
    });
    c_.call.pool->parallel_for(ceil_div(p.n, kFolded), [&](int64_t i, int) {
      for (int64_t j = i * kFolded; j < std::min((i + 1) * kFolded, p.n); j += kQuadColumns)
        for (int64_t m = 0; m < p.m; ++m)
          for (int64_t g = 0; g < p.groups; ++g) {
            Vi s[4];
            const int32_t* at = sums + (g * parts.per_group * p.m + m) * parts.row + j;
            load_sums(at, s);
            for (int64_t part = 1; part < parts.per_group; ++part)
              for (int v = 0; v < 4; ++v)
                s[v] = s[v] + loadi(at + part * p.m * parts.row + v * kLanes);
            c_.finish(s, m, g, j, std::min<int64_t>(kQuadColumns, p.n - j));
          }
    });
  }

 private:
  static constexpr int64_t kFolded = 512;  // columns

  void run_columns() const {
    const I8Problem& p = c_.p;
    const int64_t threads = c_.call.pool->n_threads();
    const int64_t wide = std::min(round_up(ceil_div(p.n, 2 * threads), kI8Strip), kI8SomeColumns);
    c_.call.pool->parallel_for(ceil_div(p.n, wide), [&](int64_t i, int thread) {
      const int64_t n0 = i * wide, cols = std::min(wide, p.n - n0);
      const int64_t row = round_up(cols, kQuadColumns);
      auto* sums = reinterpret_cast<int32_t*>(c_.more + thread * c_.w.thread_bytes);
      for (int64_t g = 0; g < p.groups; ++g) {
        sum(g, 0, c_.quads, n0, cols, sums, row);
        for (int64_t m = 0; m < p.m; ++m)
          for (int64_t j = 0; j < cols; j += kQuadColumns) {
            Vi s[4];
            load_sums(sums + m * row + j, s);
            c_.finish(s, m, g, n0 + j, std::min<int64_t>(kQuadColumns, cols - j));
          }
      }
    });
  }

  // Quads [q, end) of group g, for all rows; the first part of a group has the offset.
  void sum(int64_t g, int64_t q, int64_t end, int64_t n0, int64_t cols, int32_t* sums,
           int64_t row) const {
    for (int64_t m = 0; m < c_.p.m; ++m)
      std::fill_n(sums + m * row, round_up(cols, kQuadColumns), q == 0 ? c_.start(m, g) : 0);
    for (; q < end; q += kRunQuads) {
      const uint8_t* rows[kStep * kRunQuads];
      c_.rows_of(g, q, kRunQuads, rows);
      for (const uint8_t*& r : rows) r += n0;
      const char* x = c_.x_row(0, g) + q * Call::Dot::kBytes;
      if (end - q < kRunQuads) {
        for (int64_t i = 0; i < end - q; ++i)
          columns<1>(rows + i * kStep, x + i * Call::Dot::kBytes, cols, sums, row);
      } else {
        columns<kRunQuads>(rows, x, cols, sums, row);
      }
    }
  }

  // kN quads of x, whose weights lie at rows.
  template <int kN>
  void columns(const uint8_t* const* rows, const char* x, int64_t cols, int32_t* sums,
               int64_t row) const {
    // A little ahead, and across to the next run: other pages, which the processor does not
    // foresee.
    constexpr int64_t kAhead = 4096 / (kN * kStep);
    const int64_t next = kN * kStep * c_.call.in[2].stride[0] - cols;
    int64_t j = 0;
    for (; j + kQuadColumns <= cols; j += kQuadColumns) {
      if (j % 64 == 0)
        for (int r = 0; r < kN * kStep; ++r)
          __builtin_prefetch(rows[r] + j + kAhead + (j + kAhead < cols ? 0 : next));
      every_row<kN>(rows, j, x, sums + j, row);
    }
    if (j == cols) return;
    uint8_t edge[kN * kStep][kQuadColumns] = {};
    const uint8_t* at[kN * kStep];
    for (int r = 0; r < kN * kStep; ++r)
      at[r] =
          static_cast<uint8_t*>(std::memcpy(edge[r], rows[r] + j, static_cast<size_t>(cols - j)));
    every_row<kN>(at, 0, x, sums + j, row);
  }

  template <int kN>
  void every_row(const uint8_t* const* rows, int64_t j, const char* x, int32_t* sums,
                 int64_t row) const {
    int64_t m = 0;
    for (; m + kThinM <= c_.p.m; m += kThinM)
      some_rows<kN, kThinM>(rows, j, x + m * c_.w.row_bytes, sums + m * row, row);
    for (; m < c_.p.m; ++m) some_rows<kN, 1>(rows, j, x + m * c_.w.row_bytes, sums + m * row, row);
  }

  template <int kN, int kM>
  __attribute__((always_inline)) void some_rows(const uint8_t* const* rows, int64_t j,
                                                const char* x, int32_t* sums, int64_t row) const {
    Vi acc[kM][4];
#pragma GCC unroll 4
    for (int i = 0; i < kM; ++i) load_sums(sums + i * row, acc[i]);
#pragma GCC unroll 4
    for (int q = 0; q < kN; ++q) {
      Vi b[4];
      load_quads<kFour>(rows + q * kStep, j, b);
      Call::Dot::template add<kM>(acc, b, x + q * Call::Dot::kBytes, c_.w.row_bytes);
    }
#pragma GCC unroll 4
    for (int i = 0; i < kM; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) storei(sums + i * row + v * kLanes, acc[i][v]);
  }

  TEGULA_VEC void load_sums(const int32_t* from, Vi (&s)[4]) {
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) s[v] = loadi(from + v * kLanes);
  }

  static constexpr int kStep = kFour ? 2 : 4;  // rows of bytes in a quad
  const Call& c_;
};

#if defined(TEGULA_ISA_AVX512)
// Many rows by VPDPBUSD: weights in panels of quads, sums in registers.
class I8Quads {
 public:
  using Call = I8Call<true, false>;
  explicit I8Quads(const Call& c) : c_(c) {}

  void run() const {
    c_.for_each_block(kBlockM, [&](const uint8_t* panel, int64_t strip, int64_t strips, int64_t m0,
                                   int64_t rows) {
      for (int64_t s = 0; s < strips; ++s, panel += c_.strip_bytes()) {
        const int64_t n0 = (strip + s) * kQuadColumns, end = m0 + rows;
        int64_t m = m0;
        for (; m + kRows <= end; m += kRows) tile<kRows>(panel, m, n0);
        for (; m < end; ++m) tile<1>(panel, m, n0);
      }
    });
  }

 private:
  static constexpr int kRows = 5;          // whose sums fit the registers
  static constexpr int64_t kBlockM = 160;  // rows of a task

  template <int kM>
  void tile(const uint8_t* panel, int64_t m, int64_t n0) const {
    const int64_t cols = std::min<int64_t>(kQuadColumns, c_.p.n - n0);
    for (int64_t g = 0; g < c_.p.groups; ++g, panel += c_.held * 4 * kQuadColumns) {
      Vi acc[kM][4];
#pragma GCC unroll 8
      for (int i = 0; i < kM; ++i)
#pragma GCC unroll 4
        for (int v = 0; v < 4; ++v) acc[i][v] = set1i(c_.start(m + i, g));
      const char* x = c_.x_row(m, g);
      const uint8_t* from = panel;
      for (int64_t q = 0; q < c_.quads; q += 16, from += 64 * kQuadColumns) {
        const int64_t n = std::min<int64_t>(16, c_.quads - q);
        for (int64_t i = 0; i < n; ++i, x += Call::Dot::kBytes) {
          Vi b[4];
#pragma GCC unroll 4
          for (int v = 0; v < 4; ++v) b[v] = load_bytes(from + Call::panel_at(0, v) + i * 64);
          Call::Dot::template add<kM>(acc, b, x, c_.w.row_bytes);
        }
      }
#pragma GCC unroll 8
      for (int i = 0; i < kM; ++i) c_.finish(acc[i], m + i, g, n0, cols);
    }
  }

  const Call& c_;
};
#endif

template <bool kVnni>
void run(const KernelCall& call) {
  const I8Call<kVnni, false> c(call);
  if constexpr (!kVnni)
    if (!c.p.is_thin()) return I8Packed(c).run();
  c.pack_x();
#if defined(TEGULA_ISA_AVX512)
  if constexpr (kVnni)
    if (!c.p.is_thin()) return I8Quads(c).run();
#endif
  c.p.is_four ? Thin<kVnni, true>(c).run() : Thin<kVnni, false>(c).run();
}
}  // namespace

void dot_i8(const KernelCall& call) {
  const I8Problem p(*call.attrs, call.in);
  claim_workspace(call, I8Workspace(p).bytes(call.pool->n_threads()));
  count_i8(call, p);
  if (p.m == 0 || p.n == 0) return;
  if (p.groups == 0) return zero_i8(call, p);
#if defined(TEGULA_ISA_AVX512)
  if (machine_has_vnni()) return run<true>(call);
#endif
  run<false>(call);
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
