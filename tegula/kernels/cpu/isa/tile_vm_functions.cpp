// Instructions of the f32 class that are computed in f64, and those of its integers i8, u8, bool
// that f32 arithmetic does not give.
#include "tegula/base/integer_math.h"
#include "tegula/kernels/cpu/isa/tile_vm_map.h"
#include "tegula/kernels/cpu/isa/wide_math.h"

namespace tegula::kernel::TEGULA_ISA_NS {

namespace {

using tile::MicroOp;
using tile::Op;

// dst = F(sources), then rounded to the dtype.
template <class F>
void map_wide(const TileOp& o) {
  constexpr int kN = F::kN;
  float block[kN][16];
  const float* p[kN];
  int64_t step[kN];
  for (int64_t r = 0; r < o.rows; ++r) {
    for (int k = 0; k < kN; ++k) p[k] = open<float>(o, k, r, block[k], &step[k]);
    float* d = static_cast<float*>(o.dst) + r * o.pitch;
    for (float* const end = d + o.n; d != end; d += 16) {
      for (int j = 0; j < 16; j += kWide)
        store_wide(d + j, call<F>([&](int k) { return load_wide(p[k] + j); }));
      for (int k = 0; k < kN; ++k) p[k] += step[k];
    }
  }
  round_in_place(o);
}

#define WIDE_UNARY(Name, function)                                    \
  struct Name {                                                       \
    static constexpr int kN = 1;                                      \
    TEGULA_VEC_CALL Wd operator()(Wd x) const { return function(x); } \
  };
WIDE_UNARY(Exp2, exp2)
WIDE_UNARY(Expm1, expm1)
WIDE_UNARY(Log2, log2)
WIDE_UNARY(Log10, log10)
WIDE_UNARY(Log1p, log1p)
WIDE_UNARY(Tan, tan)
WIDE_UNARY(Asin, asin)
WIDE_UNARY(Acos, acos)
WIDE_UNARY(Atan, atan)
WIDE_UNARY(Sinh, sinh)
WIDE_UNARY(Cosh, cosh)
WIDE_UNARY(Asinh, asinh)
WIDE_UNARY(Acosh, acosh)
WIDE_UNARY(Atanh, atanh)
WIDE_UNARY(Erfc, erfc)
#undef WIDE_UNARY
#define WIDE_BINARY(Name, function)                                            \
  struct Name {                                                                \
    static constexpr int kN = 2;                                               \
    TEGULA_VEC_CALL Wd operator()(Wd a, Wd b) const { return function(a, b); } \
  };
WIDE_BINARY(Atan2, atan2)
WIDE_BINARY(Hypot, hypot)
WIDE_BINARY(Fmod, fmod)
WIDE_BINARY(Remainder, remainder)
WIDE_BINARY(FloorDivide, floor_divide)
#undef WIDE_BINARY

// i8, u8 and bool lie in f32 registers. Lanes behind the end hold anything, so that not every float
// is one of them.
template <class F>
void integers(const TileOp& o, F f) {
  const auto int_of = [](float x) {
    return x >= -128 && x <= 255 ? static_cast<int64_t>(x) : int64_t{0};
  };
  map_2<float, float>(o, [&](float a, float b) {
    return static_cast<float>(wrapped_int(o.dtype, f(int_of(a), int_of(b))));
  });
}
void op_integers(const TileOp& o) {
  const DType t = o.dtype;
  switch (o.op) {
    case Op::kPow:
      return integers(o, [t](int64_t a, int64_t b) { return integer::pow(t, a, b); });
    case Op::kFmod:
      return integers(o, integer::fmod);
    case Op::kRemainder:
      return integers(o, integer::remainder);
    case Op::kFloorDivide:
      return integers(o, [t](int64_t a, int64_t b) { return integer::floor_divide(t, a, b); });
    case Op::kBitAnd:
      return integers(o, [](int64_t a, int64_t b) { return a & b; });
    case Op::kBitOr:
      return integers(o, [](int64_t a, int64_t b) { return a | b; });
    case Op::kBitXor:
      return integers(o, [](int64_t a, int64_t b) { return a ^ b; });
    case Op::kShiftLeft:
      return integers(o, [t](int64_t a, int64_t n) { return integer::shift_left(t, a, n); });
    case Op::kShiftRight:
      return integers(o, [t](int64_t a, int64_t n) { return integer::shift_right(t, a, n); });
    default:
      return;
  }
}

// Through double, so that the result is correctly rounded (almost always) everywhere.
void pow_f32(const TileOp& o) {
  map_2<float, float>(
      o, [](float a, float b) { return static_cast<float>(__builtin_pow(double{a}, double{b})); });
  round_in_place(o);
}

TileFn find_integers(Op op) {
  switch (op) {
    case Op::kPow:
    case Op::kFmod:
    case Op::kRemainder:
    case Op::kFloorDivide:
    case Op::kBitAnd:
    case Op::kBitOr:
    case Op::kBitXor:
    case Op::kShiftLeft:
    case Op::kShiftRight:
      return op_integers;
    default:
      return nullptr;
  }
}

}  // namespace

TileFn find_function(const MicroOp& m) {
  if (!is_float(m.dtype)) return find_integers(m.op);
  switch (m.op) {
    case Op::kExp2:
      return map_wide<Exp2>;
    case Op::kExpm1:
      return map_wide<Expm1>;
    case Op::kLog2:
      return map_wide<Log2>;
    case Op::kLog10:
      return map_wide<Log10>;
    case Op::kLog1p:
      return map_wide<Log1p>;
    case Op::kTan:
      return map_wide<Tan>;
    case Op::kAsin:
      return map_wide<Asin>;
    case Op::kAcos:
      return map_wide<Acos>;
    case Op::kAtan:
      return map_wide<Atan>;
    case Op::kSinh:
      return map_wide<Sinh>;
    case Op::kCosh:
      return map_wide<Cosh>;
    case Op::kAsinh:
      return map_wide<Asinh>;
    case Op::kAcosh:
      return map_wide<Acosh>;
    case Op::kAtanh:
      return map_wide<Atanh>;
    case Op::kErfc:
      return map_wide<Erfc>;
    case Op::kAtan2:
      return map_wide<Atan2>;
    case Op::kHypot:
      return map_wide<Hypot>;
    case Op::kFmod:
      return map_wide<Fmod>;
    case Op::kRemainder:
      return map_wide<Remainder>;
    case Op::kFloorDivide:
      return map_wide<FloorDivide>;
    case Op::kPow:
      return pow_f32;
    default:
      return nullptr;
  }
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
