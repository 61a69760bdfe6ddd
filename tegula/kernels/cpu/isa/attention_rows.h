// Shared by attention's forward and backward, per row: where it lies, its scores, its mask.
#pragma once

#include "tegula/kernels/cpu/common/attention.h"
#include "tegula/kernels/cpu/common/dot_plan.h"
#include "tegula/kernels/cpu/isa/dot_micro.h"
#include "tegula/kernels/cpu/isa/pack.h"
#include "tegula/kernels/cpu/isa/tile_vm_random.h"
#include "tegula/kernels/cpu/isa/vecmath.h"

namespace tegula::kernel::TEGULA_ISA_NS {

// One query of one head.
struct QueryRow {
  int64_t batch = 0, head = 0, query = 0;
  KeyRange keys;
};

static_assert(kBlockRow == kKeyBlock);  // weights and their gradients are Lies::kBlockRows

// Keys [lo, hi) of a block of 64 that are seen.
struct Seen {
  int64_t lo, hi;
  bool is_whole = false;  // of a strip: every row sees all 64
};
static inline Seen seen_in_block(const KeyRange& keys, int64_t k0) {
  const int64_t lo = std::clamp<int64_t>(keys.lo - k0, 0, kKeyBlock);
  return {lo, std::clamp<int64_t>(keys.hi - k0, lo, kKeyBlock)};
}

// Pairs of a row and a key of the block that it sees: counted where the block is done, never from
// the mask of the whole.
static inline int64_t pairs_in_block(const QueryRow* row, int rows, int64_t k0) {
  int64_t n = 0;
  for (int i = 0; i < rows; ++i) {
    const Seen seen = seen_in_block(row[i].keys, k0);
    n += seen.hi - seen.lo;
  }
  return n;
}

// Keys [lo, hi) that some row of a strip sees, and [all_lo, all_hi) that every one does.
struct StripKeys {
  int64_t lo = INT64_MAX, hi = 0, all_lo = 0, all_hi = INT64_MAX;

  // May be empty: lo >= hi.
  Seen in_block(int64_t k0) const {
    return {std::max(lo - k0, int64_t{0}), std::min<int64_t>(hi - k0, kKeyBlock),
            all_lo <= k0 && all_hi >= k0 + kKeyBlock};
  }
};
static inline StripKeys strip_keys(const QueryRow* row, int rows) {
  StripKeys s;
  for (int i = 0; i < rows; ++i) {
    const KeyRange& keys = row[i].keys;
    s.all_lo = std::max(s.all_lo, keys.lo), s.all_hi = std::min(s.all_hi, keys.hi);
    if (keys.count() > 0) s.lo = std::min(s.lo, keys.lo), s.hi = std::max(s.hi, keys.hi);
  }
  return s;
}
// The columns to do of n keys that are there, of which some row of the strip sees `seen`: half a
// tile will often do on the mask's edge.
static inline int columns_of_tile(int64_t n, int64_t seen) {
  return static_cast<int>(std::min({n, int64_t{kTileN}, seen <= kLanes ? int64_t{kLanes} : n}));
}
inline constexpr int64_t kStripsOfRows = ceil_div(kRowBlock, kTileM);

// Loops over one dim of an operand, for pack_panel; both operand slots hold the stride.
static inline Loops loop_over(int64_t extent, int64_t stride) {
  Factor f;
  f.extent = extent, f.stride[kA] = f.stride[kB] = stride;
  Loops l;
  l.add(f);
  return l;
}

static inline int64_t offset4(const TensorRef& t, int64_t b, int64_t s, int64_t h) {
  return b * t.stride[0] + s * t.stride[1] + h * t.stride[2];
}

// f(queries), the first of which lies at an offset: f32, or as keys of T are.
template <class T, class F>
static void with_queries(const AttentionCall& c, int64_t offset, const F& f) {
  c.q->dtype == DType::kF32 ? f(c.q->as<const float>() + offset) : f(c.q->as<const T>() + offset);
}

// Hands out 64-byte aligned parts of a thread's scratch.
class Scratch {
 public:
  explicit Scratch(float* at) : at_(at) {}
  float* take(int64_t floats) {
    float* p = at_;
    at_ += round_up(floats, 16);
    return p;
  }

 private:
  float* at_;
};

static inline float load_float(const TensorRef& t, int64_t offset) {
  switch (t.dtype) {
    case DType::kBF16:
      return static_cast<float>(t.as<bf16>()[offset]);
    case DType::kF16:
      return static_cast<float>(t.as<f16>()[offset]);
    default:
      return t.as<float>()[offset];
  }
}

// n (at most 16 count) neighbours, `stride` apart, as f32; those that are not there are 0.
template <class T>
static Row16 load_apart(const T* p, int64_t stride, int64_t n) {
  if (stride == 1) return load16_n(p, n);
  float x[16] = {};
  for (int64_t j = 0; j < 16 && j < n; ++j) x[j] = static_cast<float>(p[j * stride]);
  return load16(x);
}
static inline Row16 load_floats16(const TensorRef& t, int64_t offset, int64_t stride, int64_t n) {
  switch (t.dtype) {
    case DType::kBF16:
      return load_apart(t.as<const bf16>() + offset, stride, n);
    case DType::kF16:
      return load_apart(t.as<const f16>() + offset, stride, n);
    default:
      return load_apart(t.as<const float>() + offset, stride, n);
  }
}
template <class T>
static void store_apart(T* p, int64_t stride, const Row16& x, int64_t n) {
  if (stride == 1) return store16_n(p, x, n);
  T t[16];
  store16_n(t, x, 16);
  for (int64_t j = 0; j < 16 && j < n; ++j) p[j * stride] = t[j];
}
static inline void store_floats16(const TensorRef& t, int64_t offset, int64_t stride,
                                  const Row16& x, int64_t n) {
  switch (t.dtype) {
    case DType::kBF16:
      return store_apart(t.as<bf16>() + offset, stride, x, n);
    case DType::kF16:
      return store_apart(t.as<f16>() + offset, stride, x, n);
    default:
      return store_apart(t.as<float>() + offset, stride, x, n);
  }
}

TEGULA_VEC Vm lanes_in(int base, int64_t lo, int64_t hi) {
  const Vi i = iota() + set1i(base);
  const auto clamp = [](int64_t x) { return static_cast<int32_t>(x < -1 ? -1 : x > 64 ? 64 : x); };
  return gti(i, set1i(clamp(lo - 1))) & gti(set1i(clamp(hi)), i);
}

// The forward's softmax: a row's scores of a block of keys, and when its maximum moves.
inline constexpr float kInf = __builtin_inff();
inline constexpr float kMostWeight = 256;  // of a lane's weights in a block of keys
using BlockScores = Row16[kKeyBlock / 16];

static inline void hide(BlockScores& y, const Seen& own) {
  for (int g = 0; g < kKeyBlock / 16; ++g)
    for (int v = 0; v < Row16::kRegs; ++v)
      if (own.lo > 16 * g || own.hi < 16 * g + 16)
        y[g].v[v] = select(lanes_in(16 * g + v * kLanes, own.lo, own.hi), y[g].v[v], set1(-kInf));
}
TEGULA_VEC bool exceeds(const Row16& x, float bound) {
  Vf top = x.v[0];
  for (int v = 1; v < Row16::kRegs; ++v) top = max(top, x.v[v]);
  return any(gt(top, set1(bound)));
}

// softcap, bias and alibi on 16 scores that were scaled already.
static inline void add_extras(const AttentionCall& c, const QueryRow& row, int64_t key,
                              int64_t n_keys, Row16& s, Row16* slope) {
  if (c.softcap > 0) {
    const Vf cap = set1(c.softcap);
    for (int r = 0; r < Row16::kRegs; ++r) {
      const Vf x = s.v[r] / cap;
      s.v[r] = cap * tanh(x);
      if (slope == nullptr) continue;
      // 1 - tanh^2 without the error that cancels there.
      const Vf e = exp(set1(-2.0f) * abs(x)), half = set1(1.0f) + e;
      slope->v[r] = set1(4.0f) * e / (half * half);
    }
  }
  if (c.bias != nullptr) {
    const TensorRef& t = *c.bias;
    const int64_t at = (t.shape[0] == 1 ? 0 : row.batch * t.stride[0]) +
                       (t.shape[1] == 1 ? 0 : row.head * t.stride[1]) +
                       (t.shape[2] == 1 ? 0 : row.query * t.stride[2]);
    const int64_t stride = t.shape[3] == 1 ? 0 : t.stride[3];
    s = s + load_floats16(t, at + key * stride, stride, n_keys);
  }
  if (c.alibi != nullptr) {
    const Vf a = set1(load_float(*c.alibi, row.head * c.alibi->stride[0]));
    for (int r = 0; r < Row16::kRegs; ++r) {
      const int32_t first = static_cast<int32_t>(row.keys.position - key) - r * kLanes;
      s.v[r] = s.v[r] - a * abs(to_float(set1i(first) - iota()));
    }
  }
}

// Dropout's factors for keys [key, key + n), n a multiple of 16: 0 or 1 / (1 - p).
static inline void dropout_factors(const AttentionCall& c, const QueryRow& row, int64_t key, int n,
                                   float* factor) {
  const int64_t base =
      (((row.batch + c.origin[0]) * c.whole[0] + row.head + c.origin[1]) * c.whole[1] + row.query +
       c.origin[2]) *
          c.whole[2] +
      key + c.origin[3];
  philox_run(static_cast<uint64_t>(*c.seed->as<int64_t>()), c.stream, static_cast<uint64_t>(base),
             factor, n);
  // The least f32 that is not below p: the same answer as comparing in f64.
  auto least = static_cast<float>(c.dropout);
  if (least < c.dropout) least = __builtin_nextafterf(least, 2.0f);
  const Vf keep = set1(static_cast<float>(1 / (1 - c.dropout)));
  for (int j = 0; j < n; j += kLanes)
    store(factor + j, select(lt(load(factor + j), set1(least)), zero(), keep));
}

// Sums acc [kTileN] strips of a row, times `scale`, to a row of the output.
template <class T>
static void store_row(const float* acc, int64_t strip_stride, int64_t n, float scale, T* out,
                      int64_t stride) {
  for (int64_t e = 0; e < n; e += kLanes) {
    const int64_t strip = e / kTileN, at = e % kTileN;
    // + 0: a zero has one sign, whichever masked products were formed.
    const Vf y = fma(load(acc + strip * strip_stride + at), set1(scale), zero());
    const int m = n - e < kLanes ? static_cast<int>(n - e) : kLanes;
    if (stride == 1) {
      m == kLanes ? store(out + e, y) : store_n(out + e, y, m);
    } else {
      T t[kLanes];
      store(t, y);
      for (int l = 0; l < m; ++l) out[(e + l) * stride] = t[l];
    }
  }
}

// The same to a row of `out` at an offset, which is f32 or of T.
template <class T>
static void store_row_of(const float* acc, int64_t strip_stride, int64_t n, float scale,
                         const TensorRef& out, int64_t at) {
  if (out.dtype == DType::kF32)
    store_row(acc, strip_stride, n, scale, out.as<float>() + at, out.stride[3]);
  else
    store_row(acc, strip_stride, n, scale, out.as<T>() + at, out.stride[3]);
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
