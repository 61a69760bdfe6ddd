// The vector loop of every tile instruction.
#include "tegula/kernels/cpu/isa/tile_vm.h"

#include <limits>

#include "tegula/base/philox.h"
#include "tegula/kernels/cpu/isa/tile_vm_random.h"
#include "tegula/kernels/cpu/isa/vecmath.h"

namespace tegula::kernel::TEGULA_ISA_NS {

namespace {

using tile::Class;
using tile::class_of;
using tile::Op;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr int64_t kMinI64 = std::numeric_limits<int64_t>::min();
constexpr int64_t kMaxI64 = std::numeric_limits<int64_t>::max();

// A source's row is read in blocks of 16; a broadcast value is one block (the caller's) that does
// not move: *step is what each next block adds to the returned pointer.
template <class T>
TEGULA_VEC const T* open(const TileSource& s, int64_t row, T* block, int64_t* step) {
  const T* p = static_cast<const T*>(s.data) + row * s.row_step;
  *step = 16;
  if (s.is_vector) return p;
  const T v = *p;
  for (int j = 0; j < 16; ++j) block[j] = v;
  *step = 0;
  return block;
}

// dst = f(sources), a vector at a time.
template <int N, class F>
TEGULA_VEC void map_f32(const TileOp& o, F f) {
  alignas(64) float block[N][16];
  const float* p[N];
  int64_t step[N];
  for (int64_t r = 0; r < o.rows; ++r) {
    for (int k = 0; k < N; ++k) p[k] = open<float>(o.src[k], r, block[k], &step[k]);
    float* d = static_cast<float*>(o.dst) + r * o.pitch;
    float* const end = d + o.n;
    for (; d != end; d += 16) {
#pragma GCC unroll 2
      for (int j = 0; j < 16; j += kLanes) {
        if constexpr (N == 1) {
          store(d + j, f(load(p[0] + j)));
        } else if constexpr (N == 2) {
          store(d + j, f(load(p[0] + j), load(p[1] + j)));
        } else {
          store(d + j, f(load(p[0] + j), load(p[1] + j), load(p[2] + j)));
        }
      }
      for (int k = 0; k < N; ++k) p[k] += step[k];
    }
  }
}

// The same for any classes, a block of 16 scalars at a time.
template <class D, class A, class F>
TEGULA_VEC void map_1(const TileOp& o, F f) {
  A block_a[16];
  int64_t step_a;
  for (int64_t r = 0; r < o.rows; ++r) {
    const A* a = open<A>(o.src[0], r, block_a, &step_a);
    D* d = static_cast<D*>(o.dst) + r * o.pitch;
    for (int64_t i = 0; i < o.n; i += 16, a += step_a) {
      D block[16];
      for (int j = 0; j < 16; ++j) block[j] = f(a[j]);
      std::memcpy(d + i, block, sizeof block);
    }
  }
}
template <class D, class A, class F>
TEGULA_VEC void map_2(const TileOp& o, F f) {
  A block_a[16], block_b[16];
  int64_t step_a, step_b;
  for (int64_t r = 0; r < o.rows; ++r) {
    const A* a = open<A>(o.src[0], r, block_a, &step_a);
    const A* b = open<A>(o.src[1], r, block_b, &step_b);
    D* d = static_cast<D*>(o.dst) + r * o.pitch;
    for (int64_t i = 0; i < o.n; i += 16, a += step_a, b += step_b) {
      D block[16];
      for (int j = 0; j < 16; ++j) block[j] = f(a[j], b[j]);
      std::memcpy(d + i, block, sizeof block);
    }
  }
}
template <class D, class A, class B, class F>
TEGULA_VEC void map_3(const TileOp& o, F f) {
  A block_a[16];
  B block_b[16], block_c[16];
  int64_t step_a, step_b, step_c;
  for (int64_t r = 0; r < o.rows; ++r) {
    const A* a = open<A>(o.src[0], r, block_a, &step_a);
    const B* b = open<B>(o.src[1], r, block_b, &step_b);
    const B* c = open<B>(o.src[2], r, block_c, &step_c);
    D* d = static_cast<D*>(o.dst) + r * o.pitch;
    for (int64_t i = 0; i < o.n; i += 16, a += step_a, b += step_b, c += step_c) {
      D block[16];
      for (int j = 0; j < 16; ++j) block[j] = f(a[j], b[j], c[j]);
      std::memcpy(d + i, block, sizeof block);
    }
  }
}

// Rounding to the dtype.
TEGULA_VEC Vf round_bf16(Vf a) { return widen_bf16(narrow_bf16(a)); }
TEGULA_VEC Vf round_f16(Vf a) {
  f16 t[kLanes];
  store(t, a);
  return load(t);
}
TEGULA_VEC Vf saturate(Vf a, float low, float high) {
  const Vf whole = copysign(floor(abs(a)), a) + zero();  // no -0
  return select(is_nan(a), zero(), min(max(whole, set1(low)), set1(high)));
}
TEGULA_VEC Vf truth(Vm m) { return select(m, set1(1.0f), zero()); }

TEGULA_VEC void round_in_place(const TileOp& o) {
  TileOp in_place = o;
  in_place.src[0] = {o.dst, o.pitch, true};
  switch (o.dtype) {
    case DType::kBF16:
      return map_f32<1>(in_place, [](Vf a) { return round_bf16(a); });
    case DType::kF16:
      return map_f32<1>(in_place, [](Vf a) { return round_f16(a); });
    case DType::kI8:
      return map_f32<1>(in_place, [](Vf a) { return saturate(a, -128, 127); });
    case DType::kU8:
      return map_f32<1>(in_place, [](Vf a) { return saturate(a, 0, 255); });
    case DType::kBool:
      return map_f32<1>(in_place, [](Vf a) { return truth(ne(a, zero())); });
    default:
      return;
  }
}

// Cheap instructions round to bf16 on the way; a second pass would cost as much as they do.
template <int N, class F>
TEGULA_VEC void cheap(const TileOp& o, F f) {
  if (o.dtype == DType::kF32) return map_f32<N>(o, f);
  if (o.dtype == DType::kBF16) return map_f32<N>(o, [f](auto... a) { return round_bf16(f(a...)); });
  map_f32<N>(o, f);
  round_in_place(o);
}
template <int N, class F>
TEGULA_VEC void dear(const TileOp& o, F f) {
  map_f32<N>(o, f);
  if (o.dtype != DType::kF32) round_in_place(o);
}

// NaN wins.
TEGULA_VEC Vf max_nan(Vf a, Vf b) { return select(is_nan(a), a, max(a, b)); }
TEGULA_VEC Vf min_nan(Vf a, Vf b) { return select(is_nan(a), a, min(a, b)); }
template <class T>
TEGULA_VEC T max_nan(T a, T b) {
  return a > b || a != a ? a : b;
}
template <class T>
TEGULA_VEC T min_nan(T a, T b) {
  return a < b || a != a ? a : b;
}

void op_f32(const TileOp& o) {
  switch (o.op) {
    case Op::kCopy:
      return cheap<1>(o, [](Vf a) { return a; });
    case Op::kNeg:
      return cheap<1>(o, [](Vf a) { return -a; });
    case Op::kAbs:
      return cheap<1>(o, [](Vf a) { return abs(a); });
    case Op::kSign:
      return cheap<1>(o, [](Vf a) { return truth(gt(a, zero())) - truth(lt(a, zero())); });
    case Op::kExp:
      return dear<1>(o, [](Vf a) { return exp(a); });
    case Op::kLog:
      return dear<1>(o, [](Vf a) { return log(a); });
    case Op::kSqrt:
      return dear<1>(o, [](Vf a) { return sqrt(a); });
    case Op::kRsqrt:
      return dear<1>(o, [](Vf a) { return rsqrt(a); });
    case Op::kReciprocal:
      return dear<1>(o, [](Vf a) { return set1(1.0f) / a; });
    case Op::kTanh:
      return dear<1>(o, [](Vf a) { return tanh(a); });
    case Op::kSigmoid:
      return dear<1>(o, [](Vf a) { return sigmoid(a); });
    case Op::kErf:
      return dear<1>(o, [](Vf a) { return erf(a); });
    case Op::kSin:
      return dear<1>(o, [](Vf a) { return sin(a); });
    case Op::kCos:
      return dear<1>(o, [](Vf a) { return cos(a); });
    case Op::kFloor:
      return cheap<1>(o, [](Vf a) { return floor(a); });
    case Op::kRelu:
      return cheap<1>(o, [](Vf a) { return relu(a); });
    case Op::kGelu:
      return dear<1>(o, [](Vf a) { return gelu(a); });
    case Op::kSilu:
      return dear<1>(o, [](Vf a) { return silu(a); });
    case Op::kAdd:
      return cheap<2>(o, [](Vf a, Vf b) { return a + b; });
    case Op::kSub:
      return cheap<2>(o, [](Vf a, Vf b) { return a - b; });
    case Op::kMul:
      return cheap<2>(o, [](Vf a, Vf b) { return a * b; });
    case Op::kDiv:
      return cheap<2>(o, [](Vf a, Vf b) { return a / b; });
    case Op::kMax:
      return cheap<2>(o, [](Vf a, Vf b) { return max_nan(a, b); });
    case Op::kMin:
      return cheap<2>(o, [](Vf a, Vf b) { return min_nan(a, b); });
    case Op::kPow:
      // Through double, so that the result is correctly rounded (almost always) everywhere.
      map_2<float, float>(o, [](float a, float b) {
        return static_cast<float>(__builtin_pow(double{a}, double{b}));
      });
      return round_in_place(o);
    case Op::kFma:
      return cheap<3>(o, [](Vf a, Vf b, Vf c) { return fma(a, b, c); });
    case Op::kSelect:
      return cheap<3>(o, [](Vf m, Vf a, Vf b) { return select(ne(m, zero()), a, b); });
    case Op::kLogicalNot:
      return cheap<1>(o, [](Vf a) { return truth(eq(a, zero())); });
    case Op::kLogicalAnd:
      return cheap<2>(o, [](Vf a, Vf b) { return truth(ne(a, zero()) & ne(b, zero())); });
    case Op::kLogicalOr:
      return cheap<2>(o, [](Vf a, Vf b) { return truth(ne(a, zero()) | ne(b, zero())); });
    default:
      return;
  }
}

void op_f64(const TileOp& o) {
  const auto unary = [&](auto f) { map_1<double, double>(o, f); };
  const auto binary = [&](auto f) { map_2<double, double>(o, f); };
  switch (o.op) {
    case Op::kCopy:
      return unary([](double a) { return a; });
    case Op::kNeg:
      return unary([](double a) { return -a; });
    case Op::kAbs:
      return unary([](double a) { return __builtin_fabs(a); });
    case Op::kSign:
      return unary([](double a) { return double(a > 0) - double(a < 0); });
    case Op::kExp:
      return unary([](double a) { return __builtin_exp(a); });
    case Op::kLog:
      return unary([](double a) { return __builtin_log(a); });
    case Op::kSqrt:
      return unary([](double a) { return __builtin_sqrt(a); });
    case Op::kRsqrt:
      return unary([](double a) { return 1 / __builtin_sqrt(a); });
    case Op::kReciprocal:
      return unary([](double a) { return 1 / a; });
    case Op::kTanh:
      return unary([](double a) { return __builtin_tanh(a); });
    case Op::kSigmoid:
      return unary([](double a) { return 1 / (1 + __builtin_exp(-a)); });
    case Op::kErf:
      return unary([](double a) { return __builtin_erf(a); });
    case Op::kSin:
      return unary([](double a) { return __builtin_sin(a); });
    case Op::kCos:
      return unary([](double a) { return __builtin_cos(a); });
    case Op::kFloor:
      return unary([](double a) { return __builtin_floor(a); });
    case Op::kRelu:
      return unary([](double a) { return 0 > a ? 0 : a; });
    case Op::kGelu:
      return unary([](double a) {
        const double u = -2 * 0.7978845608028654 * (a + 0.044715 * a * a * a);
        return a == -kInf ? -0.0 : a / (1 + __builtin_exp(u));
      });
    case Op::kSilu:
      return unary([](double a) { return a == -kInf ? -0.0 : a / (1 + __builtin_exp(-a)); });
    case Op::kAdd:
      return binary([](double a, double b) { return a + b; });
    case Op::kSub:
      return binary([](double a, double b) { return a - b; });
    case Op::kMul:
      return binary([](double a, double b) { return a * b; });
    case Op::kDiv:
      return binary([](double a, double b) { return a / b; });
    case Op::kMax:
      return binary([](double a, double b) { return max_nan(a, b); });
    case Op::kMin:
      return binary([](double a, double b) { return min_nan(a, b); });
    case Op::kPow:
      return binary([](double a, double b) { return __builtin_pow(a, b); });
    case Op::kFma:
      return map_3<double, double, double>(
          o, [](double a, double b, double c) { return __builtin_fma(a, b, c); });
    case Op::kSelect:
      return map_3<double, float, double>(
          o, [](float m, double a, double b) { return m != 0 ? a : b; });
    default:
      return;
  }
}

TEGULA_VEC int64_t divide(int64_t a, int64_t b) {
  if (b == 0) return a > 0 ? kMaxI64 : a < 0 ? kMinI64 : 0;
  if (b == -1) return a == kMinI64 ? kMaxI64 : -a;
  return a / b;
}

void op_i64(const TileOp& o) {
  const bool is_i32 = o.dtype == DType::kI32;
  const auto round = [is_i32](uint64_t u) {
    const auto v = static_cast<int64_t>(u);
    return is_i32 ? v < INT32_MIN ? INT32_MIN : v > INT32_MAX ? INT32_MAX : v : v;
  };
  const auto unary = [&](auto f) {
    map_1<int64_t, int64_t>(o, [=](int64_t a) { return round(static_cast<uint64_t>(f(a))); });
  };
  const auto binary = [&](auto f) {
    map_2<int64_t, int64_t>(
        o, [=](int64_t a, int64_t b) { return round(static_cast<uint64_t>(f(a, b))); });
  };
  using U = uint64_t;
  switch (o.op) {
    case Op::kCopy:
    case Op::kFloor:
      return unary([](int64_t a) { return a; });
    case Op::kNeg:
      return unary([](int64_t a) { return -U(a); });
    case Op::kAbs:
      return unary([](int64_t a) { return a < 0 ? -U(a) : U(a); });
    case Op::kSign:
      return unary([](int64_t a) { return (a > 0) - (a < 0); });
    case Op::kRelu:
      return unary([](int64_t a) { return a < 0 ? 0 : a; });
    case Op::kAdd:
      return binary([](int64_t a, int64_t b) { return U(a) + U(b); });
    case Op::kSub:
      return binary([](int64_t a, int64_t b) { return U(a) - U(b); });
    case Op::kMul:
      return binary([](int64_t a, int64_t b) { return U(a) * U(b); });
    case Op::kDiv:
      return binary([](int64_t a, int64_t b) { return divide(a, b); });
    case Op::kMax:
      return binary([](int64_t a, int64_t b) { return a > b ? a : b; });
    case Op::kMin:
      return binary([](int64_t a, int64_t b) { return a < b ? a : b; });
    case Op::kFma:
      return map_3<int64_t, int64_t, int64_t>(
          o, [=](int64_t a, int64_t b, int64_t c) { return round(U(a) * U(b) + U(c)); });
    case Op::kSelect:
      return map_3<int64_t, float, int64_t>(
          o, [=](float m, int64_t a, int64_t b) { return round(U(m != 0 ? a : b)); });
    default:
      return;
  }
}

void compare_f32(const TileOp& o) {
  switch (o.op) {
    case Op::kEq:
      return map_f32<2>(o, [](Vf a, Vf b) { return truth(eq(a, b)); });
    case Op::kNe:
      return map_f32<2>(o, [](Vf a, Vf b) { return truth(ne(a, b)); });
    case Op::kLt:
      return map_f32<2>(o, [](Vf a, Vf b) { return truth(lt(a, b)); });
    case Op::kLe:
      return map_f32<2>(o, [](Vf a, Vf b) { return truth(le(a, b)); });
    case Op::kGt:
      return map_f32<2>(o, [](Vf a, Vf b) { return truth(gt(a, b)); });
    default:
      return map_f32<2>(o, [](Vf a, Vf b) { return truth(ge(a, b)); });
  }
}
template <class T>
void compare(const TileOp& o) {
  switch (o.op) {
    case Op::kEq:
      return map_2<float, T>(o, [](T a, T b) { return float(a == b); });
    case Op::kNe:
      return map_2<float, T>(o, [](T a, T b) { return float(a != b); });
    case Op::kLt:
      return map_2<float, T>(o, [](T a, T b) { return float(a < b); });
    case Op::kLe:
      return map_2<float, T>(o, [](T a, T b) { return float(a <= b); });
    case Op::kGt:
      return map_2<float, T>(o, [](T a, T b) { return float(a > b); });
    default:
      return map_2<float, T>(o, [](T a, T b) { return float(a >= b); });
  }
}

// NaN → 0, beyond the range → its end.
TEGULA_VEC int64_t to_i64(double v) {
  if (v != v) return 0;
  if (v >= 0x1p63) return kMaxI64;
  if (v <= -0x1p63) return kMinI64;
  return static_cast<int64_t>(v);
}
TEGULA_VEC int64_t clamp_i32(int64_t v) {
  return v < INT32_MIN ? INT32_MIN : v > INT32_MAX ? INT32_MAX : v;
}

void cast(const TileOp& o) {
  const Class from = class_of(o.src_dtype), to = class_of(o.dtype);
  if (to == Class::kF32) {
    if (from == Class::kF32) return cheap<1>(o, [](Vf a) { return a; });
    if (from == Class::kF64) {
      // Straight to the integers: rounding to f32 first could round up to the next one.
      if (o.dtype == DType::kBool)
        return map_1<float, double>(o, [](double a) { return float(a != 0); });
      if (tegula::is_int(o.dtype))
        map_1<float, double>(o, [](double a) { return static_cast<float>(__builtin_trunc(a)); });
      else
        map_1<float, double>(o, [](double a) { return static_cast<float>(a); });
    } else {
      map_1<float, int64_t>(o, [](int64_t a) { return static_cast<float>(a); });
    }
    return round_in_place(o);
  }
  if (to == Class::kF64) {
    if (from == Class::kF32) return map_1<double, float>(o, [](float a) { return double{a}; });
    if (from == Class::kF64) return map_1<double, double>(o, [](double a) { return a; });
    return map_1<double, int64_t>(o, [](int64_t a) { return static_cast<double>(a); });
  }
  const bool is_i32 = o.dtype == DType::kI32;
  const auto round = [is_i32](int64_t v) { return is_i32 ? clamp_i32(v) : v; };
  if (from == Class::kF32)
    return map_1<int64_t, float>(o, [=](float a) { return round(to_i64(a)); });
  if (from == Class::kF64)
    return map_1<int64_t, double>(o, [=](double a) { return round(to_i64(a)); });
  map_1<int64_t, int64_t>(o, [=](int64_t a) { return round(a); });
}

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
      const int64_t v = o.dtype == DType::kI32 ? clamp_i32(o.imm) : o.imm;
      for (int64_t i = 0; i < o.n; ++i) static_cast<int64_t*>(o.dst)[i] = v;
    }
  }
}

void iota(const TileOp& o) {
  const bool is_i32 = o.dtype == DType::kI32;
  for (int64_t r = 0; r < o.rows; ++r) {
    int64_t* d = static_cast<int64_t*>(o.dst) + r * o.pitch;
    const int64_t linear = o.linear + r * o.linear_step;
    if (o.op == Op::kIndex) {
      for (int64_t i = 0; i < o.n; ++i) d[i] = is_i32 ? clamp_i32(linear + i) : linear + i;
      continue;
    }
    int64_t q = linear / o.iota_weight % o.iota_extent, rest = linear % o.iota_weight;
    for (int64_t i = 0; i < o.n; ++i) {
      d[i] = q;
      if (++rest == o.iota_weight) {
        rest = 0;
        if (++q == o.iota_extent) q = 0;
      }
    }
  }
}

void random_uniform(const TileOp& o) {
  const auto seed = static_cast<uint64_t>(*static_cast<const int64_t*>(o.src[0].data));
  const auto stream = static_cast<uint64_t>(o.imm);
  if (!o.src[1].data) {
    for (int64_t r = 0; r < o.rows; ++r)
      philox_run(seed, stream, static_cast<uint64_t>(o.linear + r * o.linear_step),
                 static_cast<float*>(o.dst) + r * o.pitch, o.n);
    return;
  }
  TileOp with_index = o;
  with_index.src[0] = o.src[1];
  map_1<float, int64_t>(with_index, [=](int64_t at) {
    return philox_uniform(seed, stream, static_cast<uint64_t>(at));
  });
}

// Over 16 lanes, rows in groups of K so that their chains overlap.
template <int K, class F>
TEGULA_VEC void reduce_rows(const TileOp& o, int64_t row, float start, F combine) {
  alignas(64) float block[K][16];
  const float* p[K];
  int64_t step[K];
  Row16 acc[K];
  for (int k = 0; k < K; ++k) {
    p[k] = open<float>(o.src[0], row + k, block[k], &step[k]);
    acc[k] = o.is_first ? row16(start) : load16(static_cast<const float*>(o.lanes));
  }
  int64_t i = 0;
  for (; i + 16 <= o.n; i += 16) {
#pragma GCC unroll 4
    for (int k = 0; k < K; ++k) {
      const Row16 x = load16(p[k]);
      acc[k] = map16([&](int j) { return combine(acc[k].v[j], x.v[j]); });
      p[k] += step[k];
    }
  }
  for (int k = 0; k < K; ++k) {
    if (i < o.n) {
      const Row16 x = load16_n(p[k], o.n - i, start);
      acc[k] = map16([&](int j) { return combine(acc[k].v[j], x.v[j]); });
    }
    if (!o.is_last) {
      store16_n(static_cast<float*>(o.lanes), acc[k], 16);
      continue;
    }
    alignas(64) float t[16 + kLanes] = {};
    store16_n(t, acc[k], 16);
    for (int w = 8; w > 0; w /= 2)
      for (int j = 0; j < w; j += kLanes) store(t + j, combine(load(t + j), load(t + j + w)));
    static_cast<float*>(o.dst)[row + k] = t[0];
  }
}
template <class F>
TEGULA_VEC void reduce_f32(const TileOp& o, float start, F combine) {
  int64_t r = 0;
  for (; r + 4 <= o.rows; r += 4) reduce_rows<4>(o, r, start, combine);
  for (; r < o.rows; ++r) reduce_rows<1>(o, r, start, combine);
}

template <class T, class F>
TEGULA_VEC void reduce_scalar(const TileOp& o, T start, F combine) {
  T block[16];
  int64_t step;
  for (int64_t r = 0; r < o.rows; ++r) {
    const T* p = open<T>(o.src[0], r, block, &step);
    T lane[16];
    for (int j = 0; j < 16; ++j) lane[j] = o.is_first ? start : static_cast<const T*>(o.lanes)[j];
    int64_t i = 0;
    for (; i + 16 <= o.n; i += 16, p += step)
      for (int j = 0; j < 16; ++j) lane[j] = combine(lane[j], p[j]);
    for (int64_t j = 0; i + j < o.n; ++j) lane[j] = combine(lane[j], p[j]);
    if (!o.is_last) {
      std::memcpy(o.lanes, lane, sizeof lane);
      continue;
    }
    for (int w = 8; w > 0; w /= 2)
      for (int j = 0; j < w; ++j) lane[j] = combine(lane[j], lane[j + w]);
    static_cast<T*>(o.dst)[r] = lane[0];
  }
}

void reduce(const TileOp& o) {
  switch (class_of(o.dtype)) {
    case Class::kF32:
      if (o.op == Op::kReduceSum) reduce_f32(o, 0, [](Vf a, Vf b) { return a + b; });
      if (o.op == Op::kReduceMax)
        reduce_f32(o, -static_cast<float>(kInf), [](Vf a, Vf b) { return max_nan(a, b); });
      if (o.op == Op::kReduceMin)
        reduce_f32(o, static_cast<float>(kInf), [](Vf a, Vf b) { return min_nan(a, b); });
      break;
    case Class::kF64:
      if (o.op == Op::kReduceSum) reduce_scalar(o, 0.0, [](double a, double b) { return a + b; });
      if (o.op == Op::kReduceMax)
        reduce_scalar(o, -kInf, [](double a, double b) { return max_nan(a, b); });
      if (o.op == Op::kReduceMin)
        reduce_scalar(o, kInf, [](double a, double b) { return min_nan(a, b); });
      break;
    case Class::kI64:
      if (o.op == Op::kReduceSum)
        reduce_scalar(o, int64_t{0}, [](int64_t a, int64_t b) {
          return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
        });
      if (o.op == Op::kReduceMax)
        reduce_scalar(o, kMinI64, [](int64_t a, int64_t b) { return a > b ? a : b; });
      if (o.op == Op::kReduceMin)
        reduce_scalar(o, kMaxI64, [](int64_t a, int64_t b) { return a < b ? a : b; });
      break;
  }
  if (!o.is_last || o.dtype == DType::kF32) return;
  // One value per row, to its dtype; rows are a multiple of 16 in memory.
  TileOp rows = o;
  rows.op = Op::kCopy;
  rows.rows = 1, rows.n = (o.rows + 15) & ~int64_t{15};
  rows.src[0] = {o.dst, 0, true};
  if (class_of(o.dtype) == Class::kF32) round_in_place(rows);
  if (o.dtype == DType::kI32) op_i64(rows);
}

}  // namespace

void tile_op(const TileOp& o) {
  switch (tile::op_info(o.op).kind) {
    case tile::Kind::kMemory:
      return;
    case tile::Kind::kGenerator:
      if (o.op == Op::kConstant) return constant(o);
      return o.op == Op::kRandomUniform ? random_uniform(o) : iota(o);
    case tile::Kind::kCast:
      return cast(o);
    case tile::Kind::kReduce:
      return reduce(o);
    case tile::Kind::kCompare:
      if (class_of(o.src_dtype) == Class::kF32) return compare_f32(o);
      if (class_of(o.src_dtype) == Class::kF64) return compare<double>(o);
      return compare<int64_t>(o);
    default:
      break;
  }
  switch (class_of(o.dtype)) {
    case Class::kF32:
      return op_f32(o);
    case Class::kF64:
      return op_f64(o);
    case Class::kI64:
      return op_i64(o);
  }
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
