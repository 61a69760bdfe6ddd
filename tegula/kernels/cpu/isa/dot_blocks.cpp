// y = Σ over groups of d·scale·(Σ q u) + mins, of rows of bytes and weights in blocks, exactly.
// Few rows: weights are unpacked into registers and used there, eight rows of w at a time. Many:
// strips of columns are unpacked once, quads of k side by side, and multiplied by every row.
#include "tegula/kernels/cpu/common/block_dot.h"
#include "tegula/kernels/cpu/common/dot_i8_plan.h"
#include "tegula/kernels/cpu/common/workspace.h"
#include "tegula/kernels/cpu/isa/blocks.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel::TEGULA_ISA_NS {

namespace {
// A call, and what is made of x before the products: for every row and group the sum of its
// integers times the zero of u, and d · sum for mins.
struct BlockCall {
  explicit BlockCall(const KernelCall& call) : call(call) {
    BlockDot::parse(*call.attrs, call.in, call.out[0], c);
    const BlockWorkspace w(c);
    auto* base = static_cast<char*>(call.workspace);
    offsets = reinterpret_cast<int32_t*>(base + w.offsets_at);
    mins = reinterpret_cast<float*>(base + w.mins_at);
    live = reinterpret_cast<int32_t*>(base + w.live_at);
    strips = base + w.strips_at, strip_bytes = w.strip_bytes;
    x = call.in[0].as<const int8_t>(), d = call.in[2].as<const float>();
    weights = static_cast<const uint8_t*>(call.in[1].data), y = call.out[0].as<float>();
  }
  const uint8_t* row(int64_t n) const { return weights + n * call.in[1].stride[0]; }
  int64_t place(int64_t m) const { return is_some ? live[m] : m; }
  const int8_t* x_row(int64_t m) const { return x + c.rows.offset(place(m), kA); }
  const float* d_row(int64_t m) const { return d + c.rows.offset(place(m), kB); }
  float* y_row(int64_t m) const { return y + c.rows.offset(place(m), kOut); }

  // Leaves out rows of zeros, which give zeros: those of an expert's bucket that hold no token.
  void leave_out_zeros() {
    const int64_t all = c.m, scales = c.k / kRun;
    int64_t n_live = 0;
    for (int64_t m = 0; m < all; ++m) {
      const float* from = d + c.rows.offset(m, kB);
      if (std::any_of(from, from + scales, [](float v) { return v != 0; }))
        live[n_live++] = static_cast<int32_t>(m);
      else
        std::fill_n(y + c.rows.offset(m, kOut), c.n, 0.0F);
    }
    c.m = n_live, is_some = n_live < all;
  }

  // The zero of u is the one that `Dot` of the format leaves in.
  void sum_x(int zero, bool has_min) const {
    const int64_t groups = c.groups(), e = c.layout->n_group;
    if (zero == 0 && !has_min) return;
    call.pool->parallel_for(c.m, [&](int64_t m, int) {
      const int8_t* from = x_row(m);
      const float* scale = d_row(m);
      for (int64_t g = 0; g < groups; ++g, from += e) {
        int32_t sum = 0;
        for (int64_t i = 0; i < e; ++i) sum += from[i];
        offsets[m * groups + g] = zero * sum;
        mins[m * groups + g] = scale[g * e / kRun] * static_cast<float>(sum);
      }
    });
  }

  const KernelCall& call;
  BlockDot c;
  bool is_some = false;  // c.m rows, whose places `live` says
  int32_t* live;
  int32_t* offsets;
  float* mins;
  char* strips;
  int64_t strip_bytes;
  const int8_t* x;
  const float* d;
  const uint8_t* weights;
  float* y;
};

#if defined(TEGULA_ISA_AVX512) || defined(TEGULA_ISA_AVX2)

// Eight rows of a run, and the sums of their products with x. Of 8 bits u is taken as signed,
// without its zero: |u| times x with u's sign fits 16 bits, as |x| < 128.
template <BlockFormat F>
class EightRuns {
  using B = Blocks<F>;
  static constexpr bool kIsSigned = B::kBits == 8;
  // 16 bytes hold a run: lanes of a vector are rows i and i + 4, one vector of its first half, and
  // one of its second.
  static constexpr bool kIsPaired = B::kIsNibbles;
  // The products whose sum fits 16 bits.
  static constexpr int kFit = 32767 / (((1 << B::kBits) - 1) * 127);
  static constexpr int kVectors = kIsPaired ? 4 : 8;  // of sums

 public:
  static constexpr int kZero = kIsSigned ? 0 : B::kZero;

  TEGULA_VEC void load(const uint8_t* const (&w)[8], int64_t at, int r, __m256i (&u)[8]) {
    if constexpr (kIsPaired) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const Halves two = load_halves<F>(w[i] + at, w[i + 4] + at);
        u[2 * i] = two.first, u[2 * i + 1] = two.second;
      }
    } else {
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) {
        u[i] = load_run<F>(w[i] + at, r).v;
        if constexpr (kIsSigned) u[i] = flip(u[i]);
      }
    }
  }

  // Lane i: row i's sum, of each of the run's groups.
  TEGULA_VEC void dot(const __m256i (&u)[8], const int8_t* x, __m256i (&sum)[2]) {
    __m256i v[kVectors];
    if constexpr (kIsPaired) {
      const __m256i low = load_both(x), high = load_both(x + 16);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i)
        v[i] = _mm256_add_epi16(_mm256_maddubs_epi16(u[2 * i], low),
                                _mm256_maddubs_epi16(u[2 * i + 1], high));
    } else {
      const __m256i all = load32(reinterpret_cast<const uint8_t*>(x));
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i)
        v[i] = kIsSigned ? _mm256_maddubs_epi16(_mm256_abs_epi8(u[i]), _mm256_sign_epi8(all, u[i]))
                         : _mm256_maddubs_epi16(u[i], all);
    }
    // Lanes of 16 bits are added as long as they fit, those of two rows at a time.
    constexpr int kProducts = kIsPaired ? 4 : 2;
    if constexpr (kFit < 2 * kProducts) widen<kVectors>(v);
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; i += 2)
      v[i / 2] = add<(kFit >= 2 * kProducts)>(_mm256_unpacklo_epi64(v[i], v[i + 1]),
                                              _mm256_unpackhi_epi64(v[i], v[i + 1]));
    if constexpr (kFit >= 2 * kProducts && kFit < 4 * kProducts) widen<kVectors / 2>(v);
#pragma GCC unroll 2
    for (int i = 0; i < kVectors / 2; i += 2)
      v[i / 2] = add<(kFit >= 4 * kProducts)>(evens(v[i], v[i + 1]), odds(v[i], v[i + 1]));
    if constexpr (kFit >= 4 * kProducts) widen<kVectors / 4>(v);
    if constexpr (kIsPaired) {
      sum[0] = v[0];
    } else {
      sum[0] = _mm256_permute2x128_si256(v[0], v[1], 0x20);
      sum[1] = _mm256_permute2x128_si256(v[0], v[1], 0x31);
      if constexpr (B::kGroups == 1) sum[0] = _mm256_add_epi32(sum[0], sum[1]);
    }
  }

 private:
  TEGULA_VEC __m256i load_both(const int8_t* p) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  // Pairs of 16 bits become their sums of 32.
  template <int kCount>
  TEGULA_VEC void widen(__m256i (&v)[kVectors]) {
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i) v[i] = _mm256_madd_epi16(v[i], _mm256_set1_epi16(1));
  }
  template <bool kIs16>
  TEGULA_VEC __m256i add(__m256i a, __m256i b) {
    return kIs16 ? _mm256_add_epi16(a, b) : _mm256_add_epi32(a, b);
  }
  // In each half, the lanes of 32 bits that are even (odd) of a, then of b.
  TEGULA_VEC __m256i evens(__m256i a, __m256i b) { return pick<0x88>(a, b); }
  TEGULA_VEC __m256i odds(__m256i a, __m256i b) { return pick<0xdd>(a, b); }
  template <int kLanes>
  TEGULA_VEC __m256i pick(__m256i a, __m256i b) {
    return _mm256_castps_si256(
        _mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), kLanes));
  }
};

// Up to kBlockFewRows rows of x: kM of them, eight rows of w at a time.
template <BlockFormat F, int kM>
class FewRows {
 public:
  explicit FewRows(const BlockCall& b) : b_(b) {}

  void run() const {
    const int64_t eights = ceil_div(b_.c.n, 8);
    const int64_t grain = b_.call.pool->grain(kEights);
    b_.call.pool->parallel_for(ceil_div(eights, grain), [&](int64_t task, int) {
      for (int64_t i = task * grain; i < std::min((task + 1) * grain, eights); ++i) eight(8 * i);
    });
  }

 private:
  using B = Blocks<F>;
  static constexpr int64_t kEights = 4;
  static constexpr int64_t kAhead = 8192;  // bytes beyond the next eight rows

  void eight(int64_t n0) const {
    const uint8_t* w[8];
    const int8_t* x[kM];
    const float* d[kM];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) w[i] = b_.row(std::min(n0 + i, b_.c.n - 1));
#pragma GCC unroll 4
    for (int m = 0; m < kM; ++m) x[m] = b_.x_row(m), d[m] = b_.d_row(m);
    const int64_t groups = b_.c.groups();
    // Memory is asked for as it lies, whatever the order in which it is read: the processor then
    // goes ahead by itself.
    const int64_t row = b_.call.in[1].stride[0];
    const uint8_t* next = w[0] + 8 * row + std::min(8 * row, kAhead);
    __m256 y[kM];
#pragma GCC unroll 4
    for (int m = 0; m < kM; ++m) y[m] = _mm256_setzero_ps();
    int64_t at_block = 0;
    for (int64_t run = 0; run < b_.c.k / kRun; run += B::kRuns, at_block += B::kBytes) {
      __m256 scale[B::kRuns * B::kGroups], min[B::kRuns * B::kGroups];
      load_scales_of_eight<F>(w, at_block, scale, min);
#pragma GCC unroll 8
      for (int i = 0; i < 8 * B::kBytes; i += 64) __builtin_prefetch(next + 8 * at_block + i);
#pragma GCC unroll 2
      for (int r = 0; r < B::kRuns; ++r) {
        __m256i u[8];
        EightRuns<F>::load(w, at_block, r, u);
#pragma GCC unroll 4
        for (int m = 0; m < kM; ++m) {
          const __m256 ds = _mm256_broadcast_ss(d[m] + run + r);
          __m256i sum[2];
          EightRuns<F>::dot(u, x[m] + (run + r) * kRun, sum);
#pragma GCC unroll 2
          for (int g = 0; g < B::kGroups; ++g) {
            const int64_t at = m * groups + (run + r) * B::kGroups + g;
            if constexpr (EightRuns<F>::kZero != 0)
              sum[g] = _mm256_sub_epi32(sum[g], _mm256_set1_epi32(b_.offsets[at]));
            const __m256 by = _mm256_mul_ps(ds, scale[r * B::kGroups + g]);
            y[m] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[g]), by, y[m]);
            if constexpr (B::kHasMin)
              y[m] =
                  _mm256_fmadd_ps(_mm256_broadcast_ss(b_.mins + at), min[r * B::kGroups + g], y[m]);
          }
        }
      }
    }
    alignas(32) float all[8];
    for (int m = 0; m < kM; ++m) {
      _mm256_store_ps(all, y[m]);
      std::memcpy(b_.y_row(m) + n0, all,
                  sizeof(float) * static_cast<size_t>(std::min<int64_t>(8, b_.c.n - n0)));
    }
  }

  const BlockCall& b_;
};

TEGULA_VEC Vi ones16() { return set1i(0x00010001); }
#if defined(TEGULA_ISA_AVX512)
TEGULA_VEC Vi pairs_of(Vi u, Vi x) { return {_mm512_maddubs_epi16(u.v, x.v)}; }
TEGULA_VEC void add16(Vi& a, Vi b) { asm("vpaddw %1, %0, %0" : "+v"(a.v) : "v"(b.v)); }
TEGULA_VEC Vi sum16(Vi a) { return {_mm512_madd_epi16(a.v, ones16().v)}; }
// VPDPBUSD as text, because this source is compiled for processors that lack it, too.
TEGULA_VEC Vi dot4(Vi sum, Vi u, Vi x) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum.v) : "v"(u.v), "v"(x.v));
  return sum;
}
#else
TEGULA_VEC Vi pairs_of(Vi u, Vi x) { return {_mm256_maddubs_epi16(u.v, x.v)}; }
// In place, as text: else the compiler keeps old and new sums, more than it has registers for.
TEGULA_VEC void add16(Vi& a, Vi b) { asm("vpaddw %1, %0, %0" : "+x"(a.v) : "x"(b.v)); }
TEGULA_VEC Vi sum16(Vi a) { return {_mm256_madd_epi16(a.v, ones16().v)}; }
TEGULA_VEC Vi dot4(Vi sum, Vi, Vi) { return sum; }
#endif

// The sums of a group's quads in a lane. With VNNI in 32 bits. Without, pairs in 16 bits as long
// as these cannot overflow (15 · 127 · 2 · 8 < 2^15); u of 8 bits is two halves of 4.
template <BlockFormat F, bool kVnni>
struct QuadSums {
  static constexpr int kBits = Blocks<F>::kBits;
  static constexpr int kLong = kBits <= 4 ? 8 : kBits == 5 ? 4 : 2;  // quads in 16 bits
  static constexpr bool kSplits = kBits == 8 && !kVnni;

  template <int kM, int kV>
  TEGULA_VEC void group(const char* strip, const int8_t* const (&x)[kM], int64_t k, int quads,
                        Vi (&sum)[kM][kV]) {
#pragma GCC unroll 8
    for (int m = 0; m < kM; ++m)
#pragma GCC unroll 2
      for (int v = 0; v < kV; ++v) sum[m][v] = set1i(0);
    constexpr int kStep = kVnni || kSplits ? 8 : kLong;
    for (int q = 0; q < quads; q += kStep) {
      const int n = quads - q < kStep ? quads - q : kStep;
      Vi low[kM][kV], high[kM][kV];
#pragma GCC unroll 8
      for (int m = 0; m < kM; ++m)
#pragma GCC unroll 2
        for (int v = 0; v < kV; ++v) low[m][v] = high[m][v] = set1i(0);
          // A loop: unrolled, the compiler begins with all products, and keeps them in memory.
#pragma GCC unroll 1
      for (int i = 0; i < n; ++i, strip += kV * kLanes * 4) {
        Vi u[kV], upper[kV];
#pragma GCC unroll 2
        for (int v = 0; v < kV; ++v) {
          u[v] = loadi(reinterpret_cast<const int32_t*>(strip) + v * kLanes);
          if constexpr (kSplits) {
            upper[v] = shr<4>(u[v]) & set1i(0x0f0f0f0f);
            u[v] = u[v] & set1i(0x0f0f0f0f);
          }
        }
#pragma GCC unroll 8
        for (int m = 0; m < kM; ++m) {
          // One row's bytes after the other: all at once, they would take the registers of sums.
          asm volatile("" ::: "memory");
          int32_t four;
          std::memcpy(&four, x[m] + k + 4 * (q + i), sizeof four);
          const Vi xs = set1i(four);
#pragma GCC unroll 2
          for (int v = 0; v < kV; ++v) {
            if constexpr (kVnni) {
              sum[m][v] = dot4(sum[m][v], u[v], xs);
            } else {
              add16(low[m][v], pairs_of(u[v], xs));
              if constexpr (kSplits) add16(high[m][v], pairs_of(upper[v], xs));
            }
          }
        }
      }
      if constexpr (!kVnni) {
#pragma GCC unroll 8
        for (int m = 0; m < kM; ++m)
#pragma GCC unroll 2
          for (int v = 0; v < kV; ++v) {
            sum[m][v] = sum[m][v] + sum16(low[m][v]);
            if constexpr (kSplits) sum[m][v] = sum[m][v] + shl<4>(sum16(high[m][v]));
          }
      }
    }
  }
};

// More rows: strips of columns, [run][quad][column][4], then the run's scales and mins.
template <BlockFormat F, bool kVnni>
class ManyRows {
 public:
  explicit ManyRows(const BlockCall& b) : b_(b) {}

  void run() const {
    const int64_t strips = ceil_div(b_.c.n, kColumns);
    const int64_t threads = b_.call.pool->n_threads();
    // Every thread has some tasks, where a strip unpacked twice costs less than waiting.
    int64_t rows = b_.c.m;
    while (rows > kLeastRows && strips * ceil_div(b_.c.m, rows) < 3 * threads)
      rows = round_up(ceil_div(rows, 2), kM);
    const int64_t parts = ceil_div(b_.c.m, rows);
    b_.call.pool->parallel_for(strips * parts, [&](int64_t i, int thread) {
      char* strip = b_.strips + thread * b_.strip_bytes;
      const int64_t n0 = i / parts * kColumns, m0 = i % parts * rows;
      pack(strip, n0);
      const int64_t end = std::min(m0 + rows, b_.c.m);
      int64_t m = m0;
      for (; m + kM <= end; m += kM) tile<kM>(strip, m, n0);
      for (; m < end; ++m) tile<1>(strip, m, n0);
    });
  }

 private:
  using B = Blocks<F>;
  static constexpr int kV = 2;
  static constexpr int kColumns = kV * kLanes;
#if defined(TEGULA_ISA_AVX512)
  static constexpr int kM = 6;
#else
  static constexpr int kM = QuadSums<F, kVnni>::kSplits ? 2 : 4;
#endif
  static constexpr int64_t kLeastRows = 32;
  static constexpr int kQuads = kRun / 4 / B::kGroups;  // of a group
  static constexpr int64_t kFloats = 4 * kColumns;      // bytes of a scale a column
  static constexpr int64_t kRunBytes =
      kRun * kColumns + B::kGroups * kFloats * (B::kHasMin ? 2 : 1);
  static_assert(kColumns <= kBlockColumns);

  void pack(char* strip, int64_t n0) const {
    for (int j = 0; j < kColumns; j += 8) {
      const uint8_t* w[8];
      for (int i = 0; i < 8; ++i) w[i] = b_.row(std::min(n0 + j + i, b_.c.n - 1));
      char* to = strip + 4 * j;
      for (int64_t run = 0; run < b_.c.k / kRun; run += B::kRuns) {
        for (int i = 0; i < 8; ++i) {
          float scale[B::kRuns * B::kGroups], min[B::kRuns * B::kGroups];
          load_scales<F>(w[i], scale, min, 1);
          for (int r = 0; r < B::kRuns; ++r)
            for (int g = 0; g < B::kGroups; ++g) {
              char* at = to + r * kRunBytes + kRun * kColumns + g * kFloats + 4 * i;
              std::memcpy(at, &scale[r * B::kGroups + g], 4);
              if constexpr (B::kHasMin)
                std::memcpy(at + B::kGroups * kFloats, &min[r * B::kGroups + g], 4);
            }
        }
        for (int r = 0; r < B::kRuns; ++r, to += kRunBytes) {
          __m256i u[8];
#pragma GCC unroll 8
          for (int i = 0; i < 8; ++i) u[i] = load_run<F>(w[i], r).v;
          transpose_quads(u);
#pragma GCC unroll 8
          for (int q = 0; q < 8; ++q)
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + q * 4 * kColumns), u[q]);
        }
        for (const uint8_t*& row : w) row += B::kBytes;
      }
    }
  }

  // Lane q of row i becomes lane i of row q.
  TEGULA_VEC void transpose_quads(__m256i (&r)[8]) {
    __m256i t[8], u[8];
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
      t[i] = _mm256_unpacklo_epi32(r[i], r[i + 1]);
      t[i + 1] = _mm256_unpackhi_epi32(r[i], r[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
      u[i] = _mm256_unpacklo_epi64(t[i], t[i + 2]);
      u[i + 1] = _mm256_unpackhi_epi64(t[i], t[i + 2]);
      u[i + 2] = _mm256_unpacklo_epi64(t[i + 1], t[i + 3]);
      u[i + 3] = _mm256_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      r[i] = _mm256_permute2x128_si256(u[i], u[i + 4], 0x20);
      r[i + 4] = _mm256_permute2x128_si256(u[i], u[i + 4], 0x31);
    }
  }

  template <int kRows>
  void tile(const char* strip, int64_t m0, int64_t n0) const {
    const int64_t groups = b_.c.groups();
    const int8_t* x[kRows];
    const float* d[kRows];
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m) x[m] = b_.x_row(m0 + m), d[m] = b_.d_row(m0 + m);
    Vf y[kRows][kV];
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m)
#pragma GCC unroll 2
      for (int v = 0; v < kV; ++v) y[m][v] = zero();
    for (int64_t run = 0; run < b_.c.k / kRun; ++run, strip += kRunBytes) {
#pragma GCC unroll 2
      for (int g = 0; g < B::kGroups; ++g) {
        Vi sum[kRows][kV];
        QuadSums<F, kVnni>::template group<kRows, kV>(strip + g * kQuads * 4 * kColumns, x,
                                                      run * kRun + g * 4 * kQuads, kQuads, sum);
        const auto* scale = reinterpret_cast<const float*>(strip + kRun * kColumns + g * kFloats);
        const float* min = scale + B::kGroups * kColumns;
#pragma GCC unroll 8
        for (int m = 0; m < kRows; ++m) {
          const int64_t at = (m0 + m) * groups + run * B::kGroups + g;
          const Vf by = set1(d[m][run]);
#pragma GCC unroll 2
          for (int v = 0; v < kV; ++v) {
            Vi s = sum[m][v];
            if constexpr (B::kZero != 0) s = s - set1i(b_.offsets[at]);
            y[m][v] = fma(to_float(s), by * load(scale + v * kLanes), y[m][v]);
            if constexpr (B::kHasMin)
              y[m][v] = fma(set1(b_.mins[at]), load(min + v * kLanes), y[m][v]);
          }
        }
      }
    }
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m)
#pragma GCC unroll 2
      for (int v = 0; v < kV; ++v) {
        const int64_t j = n0 + v * kLanes;
        const auto n = static_cast<int>(std::clamp<int64_t>(b_.c.n - j, 0, kLanes));
        store_n(b_.y_row(m0 + m) + j, y[m][v], n);
      }
  }

  const BlockCall& b_;
};

template <BlockFormat F>
void run_format(const KernelCall& call, bool may_be_zeros) {
  BlockCall b(call);
  if (may_be_zeros) b.leave_out_zeros();
  if (b.c.m == 0) return;
  const bool has_min = Blocks<F>::kHasMin;
  if (b.c.m <= kBlockFewRows) {
    b.sum_x(EightRuns<F>::kZero, has_min);
    switch (b.c.m) {
      case 1:
        return FewRows<F, 1>(b).run();
      case 2:
        return FewRows<F, 2>(b).run();
      case 3:
        return FewRows<F, 3>(b).run();
      default:
        return FewRows<F, 4>(b).run();
    }
  }
  b.sum_x(Blocks<F>::kZero, has_min);
#if defined(TEGULA_ISA_AVX512)
  if (machine_has_vnni()) return ManyRows<F, true>(b).run();
#endif
  ManyRows<F, false>(b).run();
}

#else

// One row of w after the other, unpacked and multiplied by every row of x.
template <BlockFormat F>
void run_format(const KernelCall& call, bool may_be_zeros) {
  BlockCall b(call);
  if (may_be_zeros) b.leave_out_zeros();
  if (b.c.m == 0) return;
  using B = Blocks<F>;
  b.sum_x(B::kZero, B::kHasMin);
  const int64_t groups = b.c.groups(), e = b.c.layout->n_group;
  call.pool->parallel_for(b.c.n, [&](int64_t n, int thread) {
    auto* scale = reinterpret_cast<float*>(b.strips + thread * b.strip_bytes);
    float* min = scale + groups;
    auto* u = reinterpret_cast<uint8_t*>(min + groups);
    const uint8_t* from = b.row(n);
    for (int64_t run = 0; run < b.c.k / kRun; run += B::kRuns, from += B::kBytes) {
      load_scales<F>(from, scale + run * B::kGroups, min + run * B::kGroups, 1);
      for (int r = 0; r < B::kRuns; ++r)
        std::memcpy(u + (run + r) * kRun, load_run<F>(from, r).v, kRun);
    }
    for (int64_t m = 0; m < b.c.m; ++m) {
      const int8_t* x = b.x_row(m);
      const float* d = b.d_row(m);
      float y = 0;
      for (int64_t g = 0; g < groups; ++g) {
        int32_t sum = 0;
        for (int64_t i = g * e; i < (g + 1) * e; ++i) sum += x[i] * u[i];
        const int64_t at = m * groups + g;
        if (B::kZero != 0) sum -= b.offsets[at];
        y = __builtin_fmaf(static_cast<float>(sum), d[g * e / kRun] * scale[g], y);
        if (B::kHasMin) y = __builtin_fmaf(b.mins[at], min[g], y);
      }
      b.y_row(m)[n] = y;
    }
  });
}

#endif

void run(BlockFormat format, const KernelCall& call, bool may_be_zeros) {
  using enum BlockFormat;
  switch (format) {
    case kQ8_0:
      return run_format<kQ8_0>(call, may_be_zeros);
    case kQ4_0:
      return run_format<kQ4_0>(call, may_be_zeros);
    case kQ4_1:
      return run_format<kQ4_1>(call, may_be_zeros);
    case kQ5_0:
      return run_format<kQ5_0>(call, may_be_zeros);
    case kQ5_1:
      return run_format<kQ5_1>(call, may_be_zeros);
    case kQ2_K:
      return run_format<kQ2_K>(call, may_be_zeros);
    case kQ3_K:
      return run_format<kQ3_K>(call, may_be_zeros);
    case kQ4_K:
      return run_format<kQ4_K>(call, may_be_zeros);
    case kQ5_K:
      return run_format<kQ5_K>(call, may_be_zeros);
    case kQ6_K:
      return run_format<kQ6_K>(call, may_be_zeros);
    case kIQ4_NL:
      return run_format<kIQ4_NL>(call, may_be_zeros);
    case kIQ4_XS:
      return run_format<kIQ4_XS>(call, may_be_zeros);
  }
}
}  // namespace

void dot_blocks(const KernelCall& call) {
  BlockDot c;
  BlockDot::parse(*call.attrs, call.in, call.out[0], c);
  claim_workspace(call, BlockWorkspace(c).bytes(call.pool->n_threads()));
  const int64_t per = c.layout->has_min ? 5 : 3;
  const int64_t flops = c.experts * (c.m * c.n * (2 * c.k + per * c.groups()) +
                                     (c.layout->has_min ? c.m * (c.k + c.groups()) : 0));
  call.counters->add(flops, flops);
  if (c.m == 0 || c.n == 0) return;
  if (call.in[1].rank == 2) return run(c.format, call, false);
  KernelCall one = call;
  for (int64_t e = 0; e < c.experts; ++e) {
    const TensorRef in[] = {expert_of(call.in[0], e), expert_of(call.in[1], e),
                            expert_of(call.in[2], e)};
    const TensorRef out[] = {expert_of(call.out[0], e)};
    one.in = in, one.out = out;
    run(c.format, one, true);
  }
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
