// Instructions of f64 and i64, and conversions between the classes: scalar code in blocks.
#include <limits>

#include "tegula/base/integer.h"
#include "tegula/base/integer_math.h"
#include "tegula/base/real.h"
#include "tegula/kernels/cpu/isa/tile_vm_map.h"

namespace tegula::kernel::TEGULA_ISA_NS {

namespace {

using tile::Class;
using tile::class_of;
using tile::Kind;
using tile::MicroOp;
using tile::Op;

constexpr double kInf = std::numeric_limits<double>::infinity();

// Functions of the C library, and divisions.
void function_f64(const TileOp& o) {
  const auto unary = [&](auto f) { map_1<double, double>(o, f); };
  const auto binary = [&](auto f) { map_2<double, double>(o, f); };
  switch (o.op) {
    case Op::kExp2:
      return unary([](double a) { return __builtin_exp2(a); });
    case Op::kExpm1:
      return unary([](double a) { return __builtin_expm1(a); });
    case Op::kLog2:
      return unary([](double a) { return __builtin_log2(a); });
    case Op::kLog10:
      return unary([](double a) { return __builtin_log10(a); });
    case Op::kLog1p:
      return unary([](double a) { return __builtin_log1p(a); });
    case Op::kTan:
      return unary([](double a) { return __builtin_tan(a); });
    case Op::kAsin:
      return unary([](double a) { return __builtin_asin(a); });
    case Op::kAcos:
      return unary([](double a) { return __builtin_acos(a); });
    case Op::kAtan:
      return unary([](double a) { return __builtin_atan(a); });
    case Op::kSinh:
      return unary([](double a) { return __builtin_sinh(a); });
    case Op::kCosh:
      return unary([](double a) { return __builtin_cosh(a); });
    case Op::kAsinh:
      return unary([](double a) { return __builtin_asinh(a); });
    case Op::kAcosh:
      return unary([](double a) { return __builtin_acosh(a); });
    case Op::kAtanh:
      return unary([](double a) { return __builtin_atanh(a); });
    case Op::kErfc:
      return unary([](double a) { return __builtin_erfc(a); });
    case Op::kFmod:
      return binary([](double a, double b) { return __builtin_fmod(a, b); });
    case Op::kRemainder:
      return binary([](double a, double b) { return real::remainder(a, b); });
    case Op::kFloorDivide:
      return binary([](double a, double b) { return real::floor_divide(a, b); });
    case Op::kAtan2:
      return binary([](double a, double b) { return __builtin_atan2(a, b); });
    case Op::kHypot:
      return binary([](double a, double b) { return __builtin_hypot(a, b); });
    case Op::kCopysign:
      return binary([](double a, double b) { return __builtin_copysign(a, b); });
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
    case Op::kRound:
      return unary([](double a) { return __builtin_nearbyint(a); });
    case Op::kTrunc:
      return unary([](double a) { return __builtin_trunc(a); });
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
      return function_f64(o);
  }
}

void op_i64(const TileOp& o) {
  using U = uint64_t;
  const WrapTo wrap(o.dtype);
  const auto round = [wrap](U u) { return wrap(static_cast<int64_t>(u)); };
  const auto unary = [&](auto f) {
    map_1<int64_t, int64_t>(o, [=](int64_t a) { return round(static_cast<U>(f(a))); });
  };
  const auto binary = [&](auto f) {
    map_2<int64_t, int64_t>(o,
                            [=](int64_t a, int64_t b) { return round(static_cast<U>(f(a, b))); });
  };
  switch (o.op) {
    case Op::kCast:
    case Op::kCopy:
    case Op::kFloor:
    case Op::kRound:
    case Op::kTrunc:
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
      return binary([t = o.dtype](int64_t a, int64_t b) { return divided_int(t, a, b); });
    case Op::kMax:
      return binary([](int64_t a, int64_t b) { return a > b ? a : b; });
    case Op::kMin:
      return binary([](int64_t a, int64_t b) { return a < b ? a : b; });
    case Op::kPow:
      return binary([t = o.dtype](int64_t a, int64_t b) { return integer::pow(t, a, b); });
    case Op::kFmod:
      return binary(integer::fmod);
    case Op::kRemainder:
      return binary(integer::remainder);
    case Op::kFloorDivide:
      return binary([t = o.dtype](int64_t a, int64_t b) { return integer::floor_divide(t, a, b); });
    case Op::kBitAnd:
      return binary([](int64_t a, int64_t b) { return a & b; });
    case Op::kBitOr:
      return binary([](int64_t a, int64_t b) { return a | b; });
    case Op::kBitXor:
      return binary([](int64_t a, int64_t b) { return a ^ b; });
    case Op::kShiftLeft:
      return binary([t = o.dtype](int64_t a, int64_t n) { return integer::shift_left(t, a, n); });
    case Op::kShiftRight:
      return binary([t = o.dtype](int64_t a, int64_t n) { return integer::shift_right(t, a, n); });
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

void f64_to_f32(const TileOp& o) {
  if (o.dtype == DType::kBool)
    return map_1<float, double>(o, [](double a) { return float(a != 0); });
  map_1<float, double>(o, [](double a) { return static_cast<float>(a); });
  round_in_place(o);
}
void i64_to_f32(const TileOp& o) {
  map_1<float, int64_t>(o, [](int64_t a) { return static_cast<float>(a); });
  round_in_place(o);
}
void f32_to_f64(const TileOp& o) {
  map_1<double, float>(o, [](float a) { return double{a}; });
}
void i64_to_f64(const TileOp& o) {
  map_1<double, int64_t>(o, [](int64_t a) { return static_cast<double>(a); });
}
typedef uint32_t U32x4 __attribute__((vector_size(16)));
typedef float F32x8 __attribute__((vector_size(32)));
typedef int32_t I32x8 __attribute__((vector_size(32)));
typedef uint32_t U32x8 __attribute__((vector_size(32)));
typedef int64_t I64x4 __attribute__((vector_size(32)));
typedef uint64_t U64x4 __attribute__((vector_size(32)));

// Truncated by shifts of the significand, which vectors have where they have no such conversion;
// NaN gives 0, and what lies beyond the range its end.
TEGULA_VEC I64x4 truncated_4(const float* from) {
  constexpr int64_t kMost = 39;  // 2^24 shifted further is beyond the range
  U32x4 narrow;
  std::memcpy(&narrow, from, sizeof narrow);
  const U64x4 u = __builtin_convertvector(narrow, U64x4);
  const I64x4 shift = (I64x4)(u >> 23 & 255) - 150, zero = shift ^ shift;
  const I64x4 is_beyond = shift > kMost;
  const I64x4 left = shift < 0 ? zero : is_beyond ? zero : shift;
  const I64x4 right = shift > 0 ? zero : shift < -24 ? zero + 24 : -shift;
  const I64x4 sign = zero - (I64x4)(u >> 31);
  const I64x4 significand = (I64x4)((u & 0x7fffff) | 0x800000);
  const I64x4 inside = (I64x4)((U64x4)significand << (U64x4)left >> (U64x4)right);
  // The negative end is the complement of the other one.
  const I64x4 y = is_beyond ? (zero + INT64_MAX) ^ sign : (inside ^ sign) - sign;
  const I64x4 is_nan = (I64x4)(u & 0x7fffffff) > 0x7f800000;
  return y & ~is_nan;
}
void f32_to_i64(const TileOp& o) {
  float block[16];
  int64_t step;
  for (int64_t r = 0; r < o.rows; ++r) {
    const float* a = open<float>(o, 0, r, block, &step);
    int64_t* d = static_cast<int64_t*>(o.dst) + r * o.pitch;
    for (int64_t i = 0; i < o.n; i += 16, a += step)
      for (int64_t j = 0; j < 16; j += 4) {
        const I64x4 x = truncated_4(a + j);
        std::memcpy(d + i + j, &x, sizeof x);
      }
  }
}

// lane[j] += integers of n blocks of 16, at most kShortBlocks: as high · 2^24 + low, whose
// conversions and sums have 32 bits. False, and nothing is done, if one is no number below 2^47.
constexpr int64_t kShortBlocks = 64;
TEGULA_VEC bool add_short(const float* a, int64_t step, int64_t n, uint64_t* lane) {
  U32x8 beyond[2] = {};
  I32x8 high[2] = {}, low[2] = {};
  for (int64_t i = 0; i < n; ++i, a += step)
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      F32x8 x;
      std::memcpy(&x, a + 8 * j, sizeof x);
      // Reaches the sign's bit from 2^47 on.
      beyond[j] |= ((U32x8)x & 0x7fffffff) + (0x80000000U - 0x57000000U);
      const I32x8 top = __builtin_convertvector(x * 0x1p-24f, I32x8);
      high[j] += top;
      low[j] += __builtin_convertvector(x - __builtin_convertvector(top, F32x8) * 0x1p24f, I32x8);
    }
  uint32_t any = 0;
  for (int j = 0; j < 8; ++j) any |= beyond[0][j] | beyond[1][j];
  if (any >> 31 != 0) return false;
  for (int j = 0; j < 16; ++j)
    lane[j] += static_cast<uint64_t>((int64_t{high[j / 8][j % 8]} << 24) + low[j / 8][j % 8]);
  return true;
}

// The sum of what f32_to_i64 gives, which no tile holds then.
void sum_f32_to_i64(const TileOp& o) {
  float block[16];
  int64_t step;
  for (int64_t r = 0; r < o.rows; ++r) {
    const float* a = open<float>(o, 0, r, block, &step);
    uint64_t lane[16] = {};
    if (!o.is_first) std::memcpy(lane, o.lanes, sizeof lane);
    for (int64_t left = o.n; left > 0;) {
      const int64_t n = std::min(left / 16, kShortBlocks);
      if (n > 0 && add_short(a, step, n, lane)) {
        a += n * step, left -= 16 * n;
        continue;
      }
      for (int64_t i = 0; i <= n && left > 0; ++i, a += step, left -= 16)
        for (int64_t j = 0; j < std::min<int64_t>(left, 16); ++j)
          lane[j] += static_cast<uint64_t>(truncated_int(DType::kI64, double{a[j]}));
    }
    if (!o.is_last) {
      std::memcpy(o.lanes, lane, sizeof lane);
      continue;
    }
    for (int j = 1; j < 16; ++j) lane[0] += lane[j];
    static_cast<int64_t*>(o.dst)[r] = static_cast<int64_t>(lane[0]);
  }
}

// The same of any class, and to narrower integers.
template <class T>
void to_i64(const TileOp& o) {
  if (o.dtype == DType::kI64)
    return map_1<int64_t, T>(o, [](T a) { return truncated_int(DType::kI64, double{a}); });
  // The ends of a narrower range are doubles, so that it is cut before it is truncated.
  const auto low = static_cast<double>(least_int(o.dtype));
  const auto high = static_cast<double>(greatest_int(o.dtype));
  map_1<int64_t, T>(o, [=](T a) {
    const double v = a == a ? double{a} : 0.0;
    return static_cast<int64_t>(v < low ? low : v > high ? high : v);
  });
}
void f64_to_f64(const TileOp& o) {
  map_1<double, double>(o, [](double a) { return a; });
}

TileFn find_cast(Class from, Class to, DType dtype) {
  switch (to) {
    case Class::kF32:
      return from == Class::kF64 ? f64_to_f32 : i64_to_f32;
    case Class::kF64:
      return from == Class::kF32 ? f32_to_f64 : from == Class::kF64 ? f64_to_f64 : i64_to_f64;
    case Class::kI64:
      if (from == Class::kF32 && dtype == DType::kI64) return f32_to_i64;
      return from == Class::kF32 ? to_i64<float> : from == Class::kF64 ? to_i64<double> : op_i64;
  }
  return nullptr;
}

}  // namespace

TileFn find_wide(const MicroOp& m) {
  if (m.then == Op::kReduceSum) return sum_f32_to_i64;
  const Class from = class_of(m.src_dtype), to = class_of(m.dtype);
  switch (tile::op_info(m.op).kind) {
    case Kind::kCast:
      return find_cast(from, to, m.dtype);
    case Kind::kCompare:
      return from == Class::kF64 ? compare<double> : compare<int64_t>;
    default:
      return to == Class::kF64 ? op_f64 : op_i64;
  }
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
