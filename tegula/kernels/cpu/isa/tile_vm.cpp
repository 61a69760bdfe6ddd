// Finds the loop of a tile instruction; the generators and reductions among them.
#include "tegula/kernels/cpu/isa/tile_vm.h"

#include <limits>

#include "tegula/base/algorithm.h"
#include "tegula/base/integer.h"
#include "tegula/base/philox.h"
#include "tegula/kernels/cpu/isa/tile_vm_map.h"
#include "tegula/kernels/cpu/isa/tile_vm_random.h"

namespace tegula::kernel::TEGULA_ISA_NS {

namespace {

using tile::Class;
using tile::class_of;
using tile::MicroOp;
using tile::Op;

constexpr double kInf = std::numeric_limits<double>::infinity();

void constant(const TileOp& o) {
  switch (class_of(o.dtype)) {
    case Class::kF32: {
      float* d = static_cast<float*>(o.dst);
      for (int64_t i = 0; i < o.n; ++i) d[i] = static_cast<float>(o.value);
      return round_in_place(o);
    }
    case Class::kF64:
      for (int64_t i = 0; i < o.n; ++i) static_cast<double*>(o.dst)[i] = o.value;
      return;
    case Class::kI64: {
      const int64_t v = WrapTo(o.dtype)(o.imm);
      for (int64_t i = 0; i < o.n; ++i) static_cast<int64_t*>(o.dst)[i] = v;
    }
  }
}

void index(const TileOp& o) {
  const WrapTo wrap(o.dtype);
  for (int64_t r = 0; r < o.rows; ++r) {
    int64_t* d = static_cast<int64_t*>(o.dst) + r * o.pitch;
    const int64_t linear = o.linear + r * o.linear_step;
    for (int64_t i = 0; i < o.n; ++i) d[i] = wrap(linear + i);
  }
}

void iota(const TileOp& o) {
  const WrapTo wrap(o.dtype);
  for (int64_t r = 0; r < o.rows; ++r) {
    int64_t* d = static_cast<int64_t*>(o.dst) + r * o.pitch;
    const int64_t linear = o.linear + r * o.linear_step;
    int64_t q = linear / o.iota_weight % o.iota_extent, rest = linear % o.iota_weight;
    for (int64_t i = 0; i < o.n; ++i) {
      d[i] = wrap(q);
      if (++rest == o.iota_weight) {
        rest = 0;
        if (++q == o.iota_extent) q = 0;
      }
    }
  }
}

void random_uniform(const TileOp& o) {
  const auto seed = static_cast<uint64_t>(*static_cast<const int64_t*>(o.src[0]));
  const auto stream = static_cast<uint64_t>(o.imm);
  for (int64_t r = 0; r < o.rows; ++r)
    philox_run(seed, stream, static_cast<uint64_t>(o.linear + r * o.linear_step),
               static_cast<float*>(o.dst) + r * o.pitch, o.n);
}

void random_uniform_at(const TileOp& o) {
  const auto seed = static_cast<uint64_t>(*static_cast<const int64_t*>(o.src[0]));
  const auto stream = static_cast<uint64_t>(o.imm);
  TileOp index = o;
  index.src[0] = o.src[1], index.row_step[0] = o.row_step[1], index.scalars = o.scalars >> 1;
  map_1<float, int64_t>(
      index, [=](int64_t at) { return philox_uniform(seed, stream, static_cast<uint64_t>(at)); });
}

// The operand of a reduction: a value, or a product or magnitude that nothing else needs.
struct Value {
  static constexpr int kN = 1;
  TEGULA_VEC_CALL Vf operator()(Vf a) const { return a; }
};
struct Product {
  static constexpr int kN = 2;
  TEGULA_VEC_CALL Vf operator()(Vf a, Vf b) const { return a * b; }
};
struct Magnitude {
  static constexpr int kN = 1;
  TEGULA_VEC_CALL Vf operator()(Vf a) const { return abs(a); }
};
struct Sum {
  static constexpr double kStart = 0;
  template <class T>
  TEGULA_VEC_CALL T operator()(T a, T b) const {
    return a + b;
  }
  TEGULA_VEC_CALL int64_t operator()(int64_t a, int64_t b) const {
    return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  }
};
struct Prod {
  static constexpr double kStart = 1;
  template <class T>
  TEGULA_VEC_CALL T operator()(T a, T b) const {
    return a * b;
  }
  TEGULA_VEC_CALL int64_t operator()(int64_t a, int64_t b) const {
    return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  }
};
struct Largest {
  static constexpr double kStart = -kInf;
  template <class T>
  TEGULA_VEC_CALL T operator()(T a, T b) const {
    return max_nan(a, b);
  }
};
struct Smallest {
  static constexpr double kStart = kInf;
  template <class T>
  TEGULA_VEC_CALL T operator()(T a, T b) const {
    return min_nan(a, b);
  }
};

// Sums that a row in several chunks keeps between them.
struct alignas(64) KeptLanes {
  float part[16];
  double total[16];
  int64_t steps;  // of the part
};
static_assert(sizeof(KeptLanes) <= kLanesBytes && sizeof(LongSum) == 16 * sizeof(double));

// K rows, each from where it is, n more elements: whole blocks.
template <int K, class F, class C>
TEGULA_VEC void reduce_run(const float* (&p)[K][F::kN], const int64_t (&step)[K][F::kN],
                           Row16 (&acc)[K], int64_t n) {
  for (int64_t i = 0; i < n; i += 16) {
#pragma GCC unroll 4
    for (int k = 0; k < K; ++k) {
      acc[k] = map16([&](int j) {
        return C{}(acc[k].v[j], call<F>([&](int s) { return load(p[k][s] + j * kLanes); }));
      });
      for (int s = 0; s < F::kN; ++s) p[k][s] += step[k][s];
    }
  }
}

// The last n elements of a row, fewer than 16.
template <class F, class C>
TEGULA_VEC Row16 reduce_tail(const float* (&p)[F::kN], Row16 acc, int64_t n) {
  alignas(64) float tail[16];
  for (int j = 0; j < 16; j += kLanes)
    store(tail + j, call<F>([&](int s) { return load(p[s] + j); }));
  for (int64_t j = n; j < 16; ++j) tail[j] = static_cast<float>(C::kStart);
  const Row16 x = load16(tail);
  return map16([&](int j) { return C{}(acc.v[j], x.v[j]); });
}

// The tree of "lane16" over each of K rows.
template <int K, class C>
TEGULA_VEC void reduce_lanes(const Row16 (&acc)[K], float* d) {
  F4 last[K];
  for (int k = 0; k < K; ++k) {
    alignas(64) float t[16];
    store16_n(t, acc[k], 16);
    F4 f[4];
    std::memcpy(f, t, sizeof t);
    last[k] = C{}(C{}(f[0], f[2]), C{}(f[1], f[3]));  // 8 apart, then 4
  }
  if constexpr (K == 4) {
    // Transposed, so that a lane is a row.
    const F4 ab_low = __builtin_shufflevector(last[0], last[1], 0, 4, 1, 5);
    const F4 cd_low = __builtin_shufflevector(last[2], last[3], 0, 4, 1, 5);
    const F4 ab_high = __builtin_shufflevector(last[0], last[1], 2, 6, 3, 7);
    const F4 cd_high = __builtin_shufflevector(last[2], last[3], 2, 6, 3, 7);
    const F4 low = C{}(ab_low, ab_high), high = C{}(cd_low, cd_high);  // 2 apart
    const F4 even = __builtin_shufflevector(low, high, 0, 1, 4, 5);
    const F4 odd = __builtin_shufflevector(low, high, 2, 3, 6, 7);
    const F4 sum = C{}(even, odd);  // 1 apart
    std::memcpy(d, &sum, sizeof sum);
  } else {
    for (int k = 0; k < K; ++k) {
      const F4 x = last[k];
      d[k] = C{}(C{}(x[0], x[2]), C{}(x[1], x[3]));
    }
  }
}

// Over 16 lanes, rows in groups of K so that their chains overlap.
template <int K, class F, class C>
TEGULA_VEC void reduce_rows(const TileOp& o, int64_t row) {
  alignas(64) float block[K][F::kN][16];
  const float* p[K][F::kN];
  int64_t step[K][F::kN];
  Row16 acc[K];
  for (int k = 0; k < K; ++k) {
    for (int s = 0; s < F::kN; ++s) p[k][s] = open<float>(o, s, row + k, block[k][s], &step[k][s]);
    acc[k] = o.is_first ? row16(static_cast<float>(C::kStart))
                        : load16(static_cast<const float*>(o.lanes));
  }
  const int64_t tail = o.n % 16;
  reduce_run<K, F, C>(p, step, acc, o.n - tail);
  if (tail > 0)
    for (int k = 0; k < K; ++k) acc[k] = reduce_tail<F, C>(p[k], acc[k], tail);
  if (o.is_last) return reduce_lanes<K, C>(acc, static_cast<float*>(o.dst) + row);
  for (int k = 0; k < K; ++k) store16_n(static_cast<float*>(o.lanes), acc[k], 16);
}

// A part of K rows, which lie in memory. The next does not wait for it: it begins at 0, and its
// loop ends as often as a processor can foresee.
template <int K, class F>
TEGULA_VEC void add_part(const float* (&p)[K][F::kN], LongSum (&total)[K]) {
  constexpr int kUnrolled = 8;
  Row16 part[K];
  for (int k = 0; k < K; ++k) part[k] = row16(0);
  for (int64_t at = 0; at < 16 * kSumPart; at += 16 * kUnrolled)
#pragma GCC unroll unrolled(kUnrolled)
    for (int i = 0; i < kUnrolled; ++i)
#pragma GCC unroll unrolled(4)
      for (int k = 0; k < K; ++k)
        part[k] = map16([&](int j) {
          return part[k].v[j] +
                 call<F>([&](int s) { return load(p[k][s] + at + (i * 16 + j * kLanes)); });
        });
#pragma GCC unroll unrolled(4)
  for (int k = 0; k < K; ++k) {
    take(total[k], part[k]);
    for (int s = 0; s < F::kN; ++s) p[k][s] += 16 * kSumPart;
  }
}

// The same for sums of more than one part. Out of line: what it takes of registers short rows need.
template <int K, class F>
__attribute__((noinline)) void sum_long_rows(const TileOp& o, int64_t row) {
  alignas(64) float block[K][F::kN][16];
  const float* p[K][F::kN];
  int64_t step[K][F::kN], steps = 0;
  bool is_dense = true;
  Row16 part[K];
  LongSum total[K];
  for (int k = 0; k < K; ++k) {
    for (int s = 0; s < F::kN; ++s) {
      p[k][s] = open<float>(o, s, row + k, block[k][s], &step[k][s]);
      is_dense &= step[k][s] == 16;
    }
    part[k] = row16(0), total[k] = long_sum();
  }
  auto* kept = static_cast<KeptLanes*>(o.lanes);  // null: the row is one chunk
  if (!o.is_first) {
    steps = kept->steps, part[0] = load16(kept->part);
    for (int i = 0; i < Row16::kRegs; ++i) total[0].v[i] = load(kept->total + i * kLanes);
  }
  const int64_t tail = o.n % 16;
  for (int64_t n = o.n - tail; n > 0;) {
    if (TEGULA_UNROLLS && is_dense && steps == 0 && n >= 16 * kSumPart) {
      add_part<K, F>(p, total);
      n -= 16 * kSumPart;
      continue;
    }
    const int64_t now = std::min(n, 16 * (kSumPart - steps));
    reduce_run<K, F, Sum>(p, step, part, now);
    n -= now, steps += now / 16;
    if (steps == kSumPart) {
      for (int k = 0; k < K; ++k) take(total[k], part[k]);
      steps = 0;
    }
  }
  for (int k = 0; k < K; ++k) {
    if (tail > 0) part[k] = reduce_tail<F, Sum>(p[k], part[k], tail);
    if (o.is_last) part[k] = rounded(total[k], part[k]);
  }
  if (o.is_last) return reduce_lanes<K, Sum>(part, static_cast<float*>(o.dst) + row);
  kept->steps = steps;
  store16_n(kept->part, part[0], 16);
  for (int i = 0; i < Row16::kRegs; ++i) store(kept->total + i * kLanes, total[0].v[i]);
}

// One value per row, to its dtype.
TEGULA_VEC TileOp results_of(const TileOp& o) {
  TileOp rows = o;
  rows.rows = 1, rows.n = (o.rows + 15) & ~int64_t{15}, rows.pitch = rows.n, rows.ahead = nullptr;
  return rows;
}
template <class F, class C>
void reduce_f32(const TileOp& o) {
  int64_t r = 0;
  if constexpr (std::is_same_v<C, Sum>)
    if (!o.is_first || !o.is_last || o.n > 16 * kSumPart) {
      for (; r + 4 <= o.rows; r += 4) sum_long_rows<4, F>(o, r);
      for (; r + 2 <= o.rows; r += 2) sum_long_rows<2, F>(o, r);
      for (; r < o.rows; ++r) sum_long_rows<1, F>(o, r);
    }
  for (; r + 4 <= o.rows; r += 4) reduce_rows<4, F, C>(o, r);
  for (; r + 2 <= o.rows; r += 2) reduce_rows<2, F, C>(o, r);
  for (; r < o.rows; ++r) reduce_rows<1, F, C>(o, r);
  if (!o.is_last || o.dtype == DType::kF32) return;
  const TileOp results = results_of(o);
  if (o.dtype == DType::kBool && C::kStart < 0) {  // -inf, the largest of nothing, is false
    TileOp in_place = results;
    in_place.src[0] = results.dst, in_place.row_step[0] = results.pitch;
    return map_1<float, float>(in_place, [](float x) { return float(x > 0); });
  }
  round_in_place(results);
}

// lane[j] += p[16 i + j] in 64 bits, for whole blocks of 16; p moves by `step` a block.
TEGULA_VEC int64_t add_blocks(int64_t (&lane)[16], const int64_t*& p, int64_t step, int64_t n) {
  typedef uint64_t U64x4 __attribute__((vector_size(32)));
  U64x4 sum[4];
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) std::memcpy(&sum[j], lane + 4 * j, sizeof sum[j]);
  int64_t i = 0;
  for (; i + 16 <= n; i += 16, p += step)
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      U64x4 next;
      std::memcpy(&next, p + 4 * j, sizeof next);
      sum[j] += next;
    }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) std::memcpy(lane + 4 * j, &sum[j], sizeof sum[j]);
  return i;
}

template <class T, class C>
void reduce_scalar(const TileOp& o) {
  T start = static_cast<T>(C::kStart == 1);
  if constexpr (std::is_same_v<T, double>)
    start = C::kStart;
  else if (C::kStart == kInf || C::kStart == -kInf)
    start = C::kStart < 0 ? least_int(o.dtype) : greatest_int(o.dtype);
  T block[16];
  int64_t step;
  for (int64_t r = 0; r < o.rows; ++r) {
    const T* p = open<T>(o, 0, r, block, &step);
    T lane[16];
    for (int j = 0; j < 16; ++j) lane[j] = o.is_first ? start : static_cast<const T*>(o.lanes)[j];
    int64_t i = 0;
    if constexpr (std::is_same_v<T, int64_t> && std::is_same_v<C, Sum>)
      i = add_blocks(lane, p, step, o.n);
    for (; i + 16 <= o.n; i += 16, p += step)
      for (int j = 0; j < 16; ++j) lane[j] = C{}(lane[j], p[j]);
    for (int64_t j = 0; i + j < o.n; ++j) lane[j] = C{}(lane[j], p[j]);
    if (!o.is_last) {
      std::memcpy(o.lanes, lane, sizeof lane);
      continue;
    }
    for (int w = 8; w > 0; w /= 2)
      for (int j = 0; j < w; ++j) lane[j] = C{}(lane[j], lane[j + w]);
    if constexpr (std::is_same_v<T, int64_t>) lane[0] = WrapTo(o.dtype)(lane[0]);
    static_cast<T*>(o.dst)[r] = lane[0];
  }
}

template <class C>
TileFn find_reduction(const MicroOp& m) {
  switch (class_of(m.dtype)) {
    case Class::kF32:
      return reduce_f32<Value, C>;
    case Class::kF64:
      return reduce_scalar<double, C>;
    case Class::kI64:
      return reduce_scalar<int64_t, C>;
  }
  return nullptr;
}

TileFn find(const MicroOp& m, unsigned scalars) {
  if (m.then == Op::kReduceMax) return reduce_f32<Magnitude, Largest>;
  if (m.then == Op::kReduceSum && m.op == Op::kMul) return reduce_f32<Product, Sum>;
  switch (m.op) {
    case Op::kConstant:
      return constant;
    case Op::kIota:
      return iota;
    case Op::kIndex:
      return index;
    case Op::kRandomUniform:
      return m.src[1] == tile::kNoValue ? random_uniform : random_uniform_at;
    case Op::kReduceSum:
      return find_reduction<Sum>(m);
    case Op::kReduceMax:
      return find_reduction<Largest>(m);
    case Op::kReduceMin:
      return find_reduction<Smallest>(m);
    case Op::kReduceProd:
      return find_reduction<Prod>(m);
    default:
      break;
  }
  const bool from_f32 = class_of(m.src_dtype) == Class::kF32;
  return class_of(m.dtype) == Class::kF32 && from_f32 ? find_f32(m, scalars) : find_wide(m);
}

}  // namespace

void tile_lookup(const TileLookup& l) { *l.fn = find(*l.micro, l.scalars); }

}  // namespace tegula::kernel::TEGULA_ISA_NS
