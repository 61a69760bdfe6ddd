// Instructions of the f32 class: f32, bf16, f16, f8e4m3, bool.
#include "tegula/kernels/cpu/isa/tile_vm_map.h"

namespace tegula::kernel::TEGULA_ISA_NS {

namespace {

using tile::MicroOp;
using tile::Op;

TEGULA_VEC Vf truth(Vm m) { return select(m, set1(1.0f), zero()); }
TEGULA_VEC Vm is_true(Vf a) { return ne(a, zero()); }

#define TILE_FN(Name, n, arguments, expression)                          \
  struct Name {                                                          \
    static constexpr int kN = n;                                         \
    TEGULA_VEC_CALL Vf operator() arguments const { return expression; } \
  };
TILE_FN(Copy, 1, (Vf a), a)
TILE_FN(Neg, 1, (Vf a), -a)
TILE_FN(Abs, 1, (Vf a), abs(a))
TILE_FN(Sign, 1, (Vf a), truth(gt(a, zero())) - truth(lt(a, zero())))
TILE_FN(Exp, 1, (Vf a), exp(a))
TILE_FN(Log, 1, (Vf a), log(a))
TILE_FN(Sqrt, 1, (Vf a), sqrt(a))
TILE_FN(Rsqrt, 1, (Vf a), rsqrt(a))
TILE_FN(Reciprocal, 1, (Vf a), set1(1.0f) / a)
TILE_FN(Tanh, 1, (Vf a), tanh(a))
TILE_FN(Sigmoid, 1, (Vf a), sigmoid(a))
TILE_FN(Erf, 1, (Vf a), erf(a))
TILE_FN(Sin, 1, (Vf a), select(eq(a, zero()), a, sin(a)))  // -0 stays
TILE_FN(Cos, 1, (Vf a), cos(a))
TILE_FN(Floor, 1, (Vf a), floor(a))
TILE_FN(Round, 1, (Vf a), round(a))
TILE_FN(Trunc, 1, (Vf a), copysign(floor(abs(a)), a))
TILE_FN(Relu, 1, (Vf a), relu(a))
TILE_FN(Gelu, 1, (Vf a), gelu(a))
TILE_FN(Silu, 1, (Vf a), silu(a))
TILE_FN(Not, 1, (Vf a), truth(eq(a, zero())))
TILE_FN(Add, 2, (Vf a, Vf b), a + b)
TILE_FN(Sub, 2, (Vf a, Vf b), a - b)
TILE_FN(Mul, 2, (Vf a, Vf b), a* b)
TILE_FN(Div, 2, (Vf a, Vf b), a / b)
TILE_FN(Max, 2, (Vf a, Vf b), max_nan(a, b))
TILE_FN(Min, 2, (Vf a, Vf b), min_nan(a, b))
TILE_FN(Copysign, 2, (Vf a, Vf b), copysign(a, b))
TILE_FN(And, 2, (Vf a, Vf b), truth(is_true(a) & is_true(b)))
TILE_FN(Or, 2, (Vf a, Vf b), truth(is_true(a) | is_true(b)))
TILE_FN(Select, 3, (Vf m, Vf a, Vf b), select(is_true(m), a, b))
TILE_FN(Fma, 3, (Vf a, Vf b, Vf c), fma(a, b, c))
#undef TILE_FN

#define TILE_COMPARE(Name, test)                                                  \
  struct Name {                                                                   \
    static constexpr int kN = 2;                                                  \
    TEGULA_VEC_CALL Vf operator()(Vf a, Vf b) const { return truth(test(a, b)); } \
  };                                                                              \
  struct Name##Select {                                                           \
    static constexpr int kN = 4;                                                  \
    TEGULA_VEC_CALL Vf operator()(Vf a, Vf b, Vf x, Vf y) const {                 \
      return select(test(a, b), x, y);                                            \
    }                                                                             \
  };
TILE_COMPARE(Eq, eq)
TILE_COMPARE(Ne, ne)
TILE_COMPARE(Lt, lt)
TILE_COMPARE(Le, le)
TILE_COMPARE(Gt, gt)
TILE_COMPARE(Ge, ge)
#undef TILE_COMPARE

// G after F, each rounded as ever; kReversed: F's result is G's second argument.
template <class F, class G, bool kReversed>
struct Then {
  static constexpr int kN = 3;
  TEGULA_VEC_CALL Vf operator()(Vf a, Vf b, Vf c) const {
    return kReversed ? G{}(c, F{}(a, b)) : G{}(F{}(a, b), c);
  }
};

TEGULA_VEC Vf through_f16(Vf a) {
  f16 t[kLanes];
  store(t, a);
  return load(t);
}
TEGULA_VEC Vf through_e4m3(Vf a) {
  float t[kLanes];
  store(t, a);
  for (float& x : t) x = static_cast<float>(f8e4m3(x));
  return load(t);
}
// x·y + z·w and x·y - z·w, each product rounded.
template <class G>
struct Products {
  static constexpr int kN = 4;
  TEGULA_VEC_CALL Vf operator()(Vf a, Vf b, Vf c, Vf d) const { return G{}(a * b, c * d); }
};
struct ExpOfSub {
  static constexpr int kN = 2;
  TEGULA_VEC_CALL Vf operator()(Vf a, Vf b) const { return exp(a - b); }
};

template <class F>
struct RoundBf16 : F {
  template <class... A>
  TEGULA_VEC_CALL Vf operator()(A... a) const {
    return round_bf16(F{}(a...));
  }
};
#define TILE_ROUND(Name, expression)                                 \
  struct Name {                                                      \
    static constexpr int kN = 1;                                     \
    TEGULA_VEC_CALL Vf operator()(Vf a) const { return expression; } \
  };
TILE_ROUND(RoundF16, through_f16(a))
TILE_ROUND(RoundE4m3, through_e4m3(a))
TILE_ROUND(RoundBool, truth(ne(a, zero())))
#undef TILE_ROUND

// Any instruction, then a pass that rounds.
template <TileFn kFn>
void then_round(const TileOp& o) {
  kFn(o);
  round_in_place(o);
}

// bf16 is rounded on the way.
template <class F>
TileFn any(DType dtype) {
  if (dtype == DType::kF32) return map_any<F>;
  return dtype == DType::kBF16 ? map_any<RoundBf16<F>> : then_round<map_any<F>>;
}

// Cheap instructions hold one scalar of two sources in a register, where there are registers for
// vectors. Any other mask takes the loop that reads it at run time.
template <class F>
TileFn cheap(DType dtype, [[maybe_unused]] unsigned scalars) {
  if (dtype != DType::kF32 && dtype != DType::kBF16) return then_round<map_any<F>>;
#if !TEGULA_UNROLLS
  return any<F>(dtype);
#else
  const bool bf = dtype == DType::kBF16;
  scalars &= (1u << F::kN) - 1;
  if (scalars == 0) return bf ? map_f32<RoundBf16<F>> : map_f32<F>;
  if constexpr (F::kN == 2) {
    if (scalars == 1) return bf ? map_f32<RoundBf16<F>, 1> : map_f32<F, 1>;
    if (scalars == 2) return bf ? map_f32<RoundBf16<F>, 2> : map_f32<F, 2>;
  }
  return bf ? then_round<map_any<F>> : map_any<F>;
#endif
}

// The variant that holds just these sources as scalars; `other` where none is compiled.
template <class F, unsigned... kScalars>
TileFn by_scalars(unsigned scalars, TileFn other) {
  TileFn found = other;
#if TEGULA_UNROLLS
  static_cast<void>(((scalars == kScalars && (found = map_f32<F, kScalars>, true)) || ...));
#else
  for (const unsigned compiled : {kScalars...})
    if (scalars == compiled) found = map_any<F>;
#endif
  return found;
}

// The first source of a sum or a product is never the scalar one (the scheduler sees to it).
template <class F, bool kMayBeFirst>
TileFn pair_by_scalars(unsigned scalars) {
  if constexpr (kMayBeFirst) {
    return by_scalars<F, 0, 1, 2, 4, 5, 6>(scalars, nullptr);
  } else {
    return by_scalars<F, 0, 2, 4, 6>(scalars, nullptr);
  }
}
template <class F, bool kFirst = false>
TileFn pair_of(Op then, bool reversed, unsigned scalars) {
  switch (then) {
    case Op::kAdd:
      return pair_by_scalars<Then<F, Add, false>, kFirst>(scalars);
    case Op::kMul:
      return pair_by_scalars<Then<F, Mul, false>, kFirst>(scalars);
    case Op::kSub:
      return reversed ? pair_by_scalars<Then<F, Sub, true>, kFirst>(scalars)
                      : pair_by_scalars<Then<F, Sub, false>, kFirst>(scalars);
    case Op::kDiv:
      return reversed ? pair_by_scalars<Then<F, Div, true>, kFirst>(scalars)
                      : pair_by_scalars<Then<F, Div, false>, kFirst>(scalars);
    default:
      return nullptr;
  }
}

template <class F>
TileFn compare_select(unsigned scalars) {
  return by_scalars<F, 0, 2, 4, 6, 8, 10, 14>(scalars, map_any<F>);
}
template <class F>
TileFn products(unsigned scalars) {
  return by_scalars<F, 0, 2, 10>(scalars, map_any<F>);
}
// Scalars at the second and third source only.
template <class F>
TileFn clamp(unsigned scalars) {
  return by_scalars<F, 6>(scalars, map_any<F>);
}

TileFn find_pair(const MicroOp& m, unsigned scalars) {
  if (m.is_two_products)
    return m.then == Op::kAdd ? products<Products<Add>>(scalars) : products<Products<Sub>>(scalars);
  const bool reversed = m.then_reversed;
  switch (m.op) {
    case Op::kAdd:
      return pair_of<Add>(m.then, reversed, scalars);
    case Op::kSub:
      if (m.then == Op::kExp) return by_scalars<ExpOfSub, 2>(scalars, map_any<ExpOfSub>);
      return pair_of<Sub, true>(m.then, reversed, scalars);
    case Op::kMul:
      return pair_of<Mul>(m.then, reversed, scalars);
    case Op::kMax:
      return reversed ? clamp<Then<Max, Min, true>>(scalars)
                      : clamp<Then<Max, Min, false>>(scalars);
    case Op::kMin:
      return reversed ? clamp<Then<Min, Max, true>>(scalars)
                      : clamp<Then<Min, Max, false>>(scalars);
    case Op::kEq:
      return compare_select<EqSelect>(scalars);
    case Op::kNe:
      return compare_select<NeSelect>(scalars);
    case Op::kLt:
      return compare_select<LtSelect>(scalars);
    case Op::kLe:
      return compare_select<LeSelect>(scalars);
    case Op::kGt:
      return compare_select<GtSelect>(scalars);
    case Op::kGe:
      return compare_select<GeSelect>(scalars);
    default:
      return nullptr;
  }
}

}  // namespace

void round_in_place(const TileOp& o) {
  TileOp in_place = o;
  in_place.src[0] = o.dst, in_place.row_step[0] = o.pitch;
  switch (o.dtype) {
    case DType::kBF16:
      return map_f32<RoundBf16<Copy>>(in_place);
    case DType::kF16:
      return map_f32<RoundF16>(in_place);
    case DType::kF8E4M3:
      return map_f32<RoundE4m3>(in_place);
    case DType::kBool:
      return map_f32<RoundBool>(in_place);
    default:
      return;
  }
}

TileFn find_f32(const MicroOp& m, unsigned scalars) {
  const DType t = m.dtype;
  if (m.then != Op::kCopy) return find_pair(m, scalars);
  switch (m.op) {
    case Op::kCopy:
      return any<Copy>(t);
    case Op::kNeg:
      return cheap<Neg>(t, scalars);
    case Op::kAbs:
      return cheap<Abs>(t, scalars);
    case Op::kSign:
      return any<Sign>(t);
    case Op::kExp:
      return any<Exp>(t);
    case Op::kLog:
      return any<Log>(t);
    case Op::kSqrt:
      return any<Sqrt>(t);
    case Op::kRsqrt:
      return any<Rsqrt>(t);
    case Op::kReciprocal:
      return any<Reciprocal>(t);
    case Op::kTanh:
      return any<Tanh>(t);
    case Op::kSigmoid:
      return any<Sigmoid>(t);
    case Op::kErf:
      return any<Erf>(t);
    case Op::kSin:
      return any<Sin>(t);
    case Op::kCos:
      return any<Cos>(t);
    case Op::kFloor:
      return any<Floor>(t);
    case Op::kRound:
      return any<Round>(t);
    case Op::kTrunc:
      return any<Trunc>(t);
    case Op::kRelu:
      return cheap<Relu>(t, scalars);
    case Op::kGelu:
      return any<Gelu>(t);
    case Op::kSilu:
      return any<Silu>(t);
    case Op::kAdd:
      return cheap<Add>(t, scalars);
    case Op::kSub:
      return cheap<Sub>(t, scalars);
    case Op::kMul:
      return cheap<Mul>(t, scalars);
    case Op::kDiv:
      return cheap<Div>(t, scalars);
    case Op::kMax:
      return cheap<Max>(t, scalars);
    case Op::kMin:
      return cheap<Min>(t, scalars);
    case Op::kCopysign:
      return any<Copysign>(t);
    case Op::kFma:
      return any<Fma>(t);
    case Op::kSelect:
      return t == DType::kF32 ? by_scalars<Select, 1>(scalars, map_any<Select>) : any<Select>(t);
    case Op::kLogicalNot:
      return map_any<Not>;
    case Op::kLogicalAnd:
      return map_any<And>;
    case Op::kLogicalOr:
      return map_any<Or>;
    case Op::kEq:
      return map_any<Eq>;
    case Op::kNe:
      return map_any<Ne>;
    case Op::kLt:
      return map_any<Lt>;
    case Op::kLe:
      return map_any<Le>;
    case Op::kGt:
      return map_any<Gt>;
    case Op::kGe:
      return map_any<Ge>;
    case Op::kCast:
      return cheap<Copy>(t, scalars);
    default:
      return find_function(m);
  }
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
