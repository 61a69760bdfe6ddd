#include "tests/common/tile_reference.h"

#include <cmath>

#include "tegula/base/algorithm.h"
#include "tegula/base/half.h"
#include "tegula/base/integer.h"
#include "tegula/base/integer_math.h"
#include "tegula/base/philox.h"
#include "tegula/base/real.h"
#include "tegula/base/thread_pool.h"
#include "tegula/tile/long_sum.h"

namespace tegula::tile {

namespace {

// A value of any class; `f` holds f32 exactly.
struct Scalar {
  double f = 0;
  int64_t i = 0;
};

int64_t wrap(uint64_t v) { return static_cast<int64_t>(v); }

struct Rounder {
  Precision precision;
  double operator()(DType t, double v) const {
    switch (t) {
      case DType::kF32:
        return precision == Precision::kDouble ? v : static_cast<float>(v);
      case DType::kBF16:
        return precision == Precision::kDouble ? v : float(bf16(static_cast<float>(v)));
      case DType::kF16:
        return precision == Precision::kDouble ? v : float(f16(static_cast<float>(v)));
      case DType::kF8E4M3:
        return precision == Precision::kDouble ? v : float(f8e4m3(static_cast<float>(v)));
      case DType::kBool:
        return v != 0 ? 1 : 0;
      default:
        return v;
    }
  }
  int64_t operator()(DType t, int64_t v) const { return wrapped_int(t, v); }
};

template <class T>
T max_of(T a, T b) {
  return a > b || a != a ? a : b;
}
template <class T>
T min_of(T a, T b) {
  return a < b || a != a ? a : b;
}

// The functions of <cmath> among them, and divisions.
template <class T>
T function_op(Op op, T a, T b) {
  const double x = a;
  switch (op) {
    case Op::kExp2:
      return static_cast<T>(std::exp2(x));
    case Op::kExpm1:
      return static_cast<T>(std::expm1(x));
    case Op::kLog2:
      return static_cast<T>(std::log2(x));
    case Op::kLog10:
      return static_cast<T>(std::log10(x));
    case Op::kLog1p:
      return static_cast<T>(std::log1p(x));
    case Op::kTan:
      return static_cast<T>(std::tan(x));
    case Op::kAsin:
      return static_cast<T>(std::asin(x));
    case Op::kAcos:
      return static_cast<T>(std::acos(x));
    case Op::kAtan:
      return static_cast<T>(std::atan(x));
    case Op::kSinh:
      return static_cast<T>(std::sinh(x));
    case Op::kCosh:
      return static_cast<T>(std::cosh(x));
    case Op::kAsinh:
      return static_cast<T>(std::asinh(x));
    case Op::kAcosh:
      return static_cast<T>(std::acosh(x));
    case Op::kAtanh:
      return static_cast<T>(std::atanh(x));
    case Op::kErfc:
      return static_cast<T>(std::erfc(x));
    case Op::kFmod:
      return std::fmod(a, b);
    case Op::kRemainder:
      return real::remainder(a, b);
    case Op::kFloorDivide:
      return static_cast<T>(real::floor_divide(x, static_cast<double>(b)));
    case Op::kAtan2:
      return static_cast<T>(std::atan2(x, static_cast<double>(b)));
    case Op::kHypot:
      return static_cast<T>(std::hypot(x, static_cast<double>(b)));
    case Op::kCopysign:
      return std::copysign(a, b);
    default:
      TEGULA_CHECK(false, "float_op: ", op_info(op).name);
  }
  return a;
}

// Float arithmetic in T (float: one rounding per step; double: the f64 class, or kDouble).
template <class T>
T float_op(Op op, T a, T b, T c) {
  const double x = a;
  switch (op) {
    case Op::kCopy:
      return a;
    case Op::kNeg:
      return -a;
    case Op::kAbs:
      return std::fabs(a);
    case Op::kSign:
      return a > 0 ? T(1) : a < 0 ? T(-1) : T(0);
    case Op::kExp:
      return static_cast<T>(std::exp(x));
    case Op::kLog:
      return static_cast<T>(std::log(x));
    case Op::kSqrt:
      return std::sqrt(a);
    case Op::kRsqrt:
      return T(1) / std::sqrt(a);
    case Op::kReciprocal:
      return T(1) / a;
    case Op::kTanh:
      return static_cast<T>(std::tanh(x));
    case Op::kSigmoid:
      return static_cast<T>(1 / (1 + std::exp(-x)));
    case Op::kErf:
      return static_cast<T>(std::erf(x));
    case Op::kSin:
      return static_cast<T>(std::sin(x));
    case Op::kCos:
      return static_cast<T>(std::cos(x));
    case Op::kFloor:
      return std::floor(a);
    case Op::kRound:
      return std::nearbyint(a);
    case Op::kTrunc:
      return std::trunc(a);
    case Op::kRelu:
      return T(0) > a ? T(0) : a;
    case Op::kGelu:
      // x·sigmoid(2u): equal to the tanh form, without its cancellation at negative x.
      return static_cast<T>(x == -HUGE_VAL ? -0.0
                                           : x / (1 + std::exp(-2 * 0.7978845608028654 *
                                                               (x + 0.044715 * x * x * x))));
    case Op::kSilu:
      return static_cast<T>(x == -HUGE_VAL ? -0.0 : x / (1 + std::exp(-x)));
    case Op::kAdd:
      return a + b;
    case Op::kSub:
      return a - b;
    case Op::kMul:
      return a * b;
    case Op::kDiv:
      return a / b;
    case Op::kMax:
      return max_of(a, b);
    case Op::kMin:
      return min_of(a, b);
    case Op::kPow:
      return static_cast<T>(std::pow(x, static_cast<double>(b)));
    case Op::kFma:
      return std::fma(a, b, c);
    default:
      return function_op(op, a, b);
  }
}

// The ops that bool has in common with integers; other arithmetic of it is f32's.
bool is_integers_own(Op op) {
  return (op >= Op::kPow && op <= Op::kFloorDivide) || (op >= Op::kBitAnd && op <= Op::kShiftRight);
}

int64_t int_op(DType t, Op op, int64_t a, int64_t b, int64_t c) {
  const auto ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
  switch (op) {
    case Op::kCopy:
    case Op::kFloor:
    case Op::kRound:
    case Op::kTrunc:
      return a;
    case Op::kPow:
      return integer::pow(t, a, b);
    case Op::kFmod:
      return integer::fmod(a, b);
    case Op::kRemainder:
      return integer::remainder(a, b);
    case Op::kFloorDivide:
      return integer::floor_divide(t, a, b);
    case Op::kBitAnd:
      return a & b;
    case Op::kBitOr:
      return a | b;
    case Op::kBitXor:
      return a ^ b;
    case Op::kShiftLeft:
      return integer::shift_left(t, a, b);
    case Op::kShiftRight:
      return integer::shift_right(t, a, b);
    case Op::kNeg:
      return wrap(-ua);
    case Op::kAbs:
      return a < 0 ? wrap(-ua) : a;
    case Op::kSign:
      return (a > 0) - (a < 0);
    case Op::kRelu:
      return std::max<int64_t>(a, 0);
    case Op::kAdd:
      return wrap(ua + ub);
    case Op::kSub:
      return wrap(ua - ub);
    case Op::kMul:
      return wrap(ua * ub);
    case Op::kDiv:
      return divided_int(t, a, b);
    case Op::kMax:
      return std::max(a, b);
    case Op::kMin:
      return std::min(a, b);
    case Op::kFma:
      return wrap(ua * ub + static_cast<uint64_t>(c));
    default:
      TEGULA_CHECK(false, "int_op: ", op_info(op).name);
  }
  return a;
}

template <class T>
bool compare(Op op, T a, T b) {
  switch (op) {
    case Op::kEq:
      return a == b;
    case Op::kNe:
      return a != b;
    case Op::kLt:
      return a < b;
    case Op::kLe:
      return a <= b;
    case Op::kGt:
      return a > b;
    default:
      return a >= b;
  }
}

Scalar read(const TensorRef& t, int64_t o) {
  switch (t.dtype) {
    case DType::kF64:
      return {t.as<double>()[o], 0};
    case DType::kF32:
      return {t.as<float>()[o], 0};
    case DType::kBF16:
      return {float(t.as<bf16>()[o]), 0};
    case DType::kF16:
      return {float(t.as<f16>()[o]), 0};
    case DType::kF8E4M3:
      return {float(t.as<f8e4m3>()[o]), 0};
    case DType::kI64:
      return {0, t.as<int64_t>()[o]};
    case DType::kI32:
      return {0, t.as<int32_t>()[o]};
    case DType::kI8:
      return {0, t.as<int8_t>()[o]};
    case DType::kU8:
      return {0, t.as<uint8_t>()[o]};
    case DType::kBool:
      return {double(t.as<uint8_t>()[o]), 0};
  }
  return {};
}

// `v` is already rounded to the program's dtype.
void write(const TensorRef& t, int64_t o, Scalar v) {
  switch (t.dtype) {
    case DType::kF64:
      t.as<double>()[o] = v.f;
      break;
    case DType::kF32:
      t.as<float>()[o] = static_cast<float>(v.f);
      break;
    case DType::kBF16:
      t.as<bf16>()[o] = bf16(static_cast<float>(v.f));
      break;
    case DType::kF16:
      t.as<f16>()[o] = f16(static_cast<float>(v.f));
      break;
    case DType::kF8E4M3:
      t.as<f8e4m3>()[o] = f8e4m3(static_cast<float>(v.f));
      break;
    case DType::kI64:
      t.as<int64_t>()[o] = v.i;
      break;
    case DType::kI32:
      t.as<int32_t>()[o] = static_cast<int32_t>(v.i);
      break;
    case DType::kI8:
      t.as<int8_t>()[o] = static_cast<int8_t>(v.i);
      break;
    case DType::kU8:
      t.as<uint8_t>()[o] = static_cast<uint8_t>(v.i);
      break;
    case DType::kBool:
      t.as<uint8_t>()[o] = static_cast<uint8_t>(v.f);
      break;
  }
}

class Machine {
 public:
  Machine(const Program& p, const Space& space, std::span<const TensorRef> in,
          std::span<const TensorRef> out, Precision precision)
      : p_(p), space_(space), in_(in), out_(out), round_{precision}, extent_(extents_of(p)) {
    values_.resize(p.code.size());
  }

  void run() {
    for (size_t k = 0; k < out_.size(); ++k)
      if (p_.outputs[k].extent == Extent::kColumn)
        for (int64_t c = 0; c < space_.row_len; ++c) write(out_[k], offset(out_[k], 0, c), {});
    // The "rows" of an elementwise program are single elements.
    for (int64_t r = 0; r < space_.n_rows; ++r) row(r);
  }

 private:
  void row(int64_t r) {
    for (size_t v = 0; v < p_.code.size(); ++v) {
      const Instr& i = p_.code[v];
      const bool is_full = extent_[v] == Extent::kFull;
      if (i.op == Op::kStore) {
        const TensorRef& t = out_[static_cast<size_t>(i.imm)];
        const int64_t n = is_full ? space_.row_len : 1;
        if (p_.outputs[static_cast<size_t>(i.imm)].extent == Extent::kColumn) {
          for (int64_t c = 0; c < n; ++c) add_to_column(i, t, r, c);
          continue;
        }
        for (int64_t c = 0; c < n; ++c) write(t, offset(t, r, c), get(i.src[0], c));
        continue;
      }
      auto& value = values_[v];
      if (op_info(i.op).kind == Kind::kReduce) {
        value.assign(1, reduce(i));
        continue;
      }
      value.resize(static_cast<size_t>(is_full ? space_.row_len : 1));
      for (size_t c = 0; c < value.size(); ++c) value[c] = element(i, r, static_cast<int64_t>(c));
    }
  }

  // One ascending chain over the rows, rounded as each is added.
  void add_to_column(const Instr& i, const TensorRef& t, int64_t r, int64_t c) const {
    const int64_t at = offset(t, r, c);
    write(t, at, {round_(i.dtype, read(t, at).f + get(i.src[0], c).f), 0});
  }

  Scalar get(uint16_t v, int64_t c) const {
    const auto& value = values_[v];
    return value[extent_[v] == Extent::kFull ? static_cast<size_t>(c) : 0];
  }

  // The offset of element (row r, position c); dims of extent 1 (row operands) do not move.
  int64_t offset(const TensorRef& t, int64_t r, int64_t c) const {
    int64_t o = 0;
    for (int d = t.rank - 1; d >= 0; --d) {
      int64_t& rest = d < p_.rank - p_.n_inner ? r : c;
      const int64_t extent = std::max<int64_t>(space_.shape[d], 1);  // a row may have no elements
      if (t.shape[d] != 1) o += rest % extent * t.stride[d];
      rest /= extent;
    }
    return o;
  }

  int64_t iota(int64_t dim, int64_t r, int64_t c) const {
    const auto extent = [&](int64_t d) { return std::max<int64_t>(space_.shape[d], 1); };
    int64_t linear = r * std::max<int64_t>(space_.row_len, 1) + c;  // a row may have no elements
    for (int d = space_.rank - 1; d > dim; --d) linear /= extent(d);
    return linear % extent(dim);
  }

  Scalar generate(const Instr& i, int64_t r, int64_t c) const {
    const int64_t linear = r * space_.row_len + c;
    switch (i.op) {
      case Op::kLoad: {
        const auto k = static_cast<size_t>(i.imm);
        const bool one = p_.inputs[k].extent == Extent::kUniform;
        return read(in_[k], one ? 0 : offset(in_[k], r, c));
      }
      case Op::kIota:
        return {0, round_(i.dtype, iota(i.imm, r, c))};
      case Op::kIndex:
        return {0, round_(i.dtype, i.imm ? r : linear)};
      case Op::kRandomUniform: {
        const int64_t at = i.src[1] == kNoValue ? linear : get(i.src[1], c).i;
        return {philox_uniform(static_cast<uint64_t>(get(i.src[0], c).i),
                               static_cast<uint64_t>(i.imm), static_cast<uint64_t>(at)),
                0};
      }
      default:
        return {round_(i.dtype, i.value), round_(i.dtype, i.imm)};
    }
  }

  Scalar element(const Instr& i, int64_t r, int64_t c) const {
    const OpInfo& info = op_info(i.op);
    if (info.kind == Kind::kMemory || info.kind == Kind::kGenerator) return generate(i, r, c);
    Scalar s[3];
    for (int k = 0; k < 3; ++k)
      if (i.src[k] != kNoValue) s[k] = get(i.src[k], c);
    const Class from = class_of(p_.code[i.src[0]].dtype), to = class_of(i.dtype);
    switch (info.kind) {
      case Kind::kCompare:
        return {double(from == Class::kI64 ? compare(i.op, s[0].i, s[1].i)
                                           : compare(i.op, s[0].f, s[1].f)),
                0};
      case Kind::kLogical:
        if (i.op == Op::kLogicalNot) return {double(s[0].f == 0), 0};
        return {double(i.op == Op::kLogicalAnd ? s[0].f != 0 && s[1].f != 0
                                               : s[0].f != 0 || s[1].f != 0),
                0};
      case Kind::kSelect: {
        const Scalar v = s[0].f != 0 ? s[1] : s[2];
        return {round_(i.dtype, v.f), round_(i.dtype, v.i)};
      }
      case Kind::kCast:
        return cast(i.dtype, from, to, s[0]);
      default:
        return arithmetic(i, to, s);
    }
  }

  Scalar cast(DType dtype, Class from, Class to, Scalar v) const {
    if (from == Class::kI64) {
      if (to == Class::kI64) return {0, round_(dtype, v.i)};
      // One rounding from i64 to f32, not two by way of double.
      const bool is_single = to == Class::kF32 && round_.precision == Precision::kDtype;
      return {round_(dtype, is_single ? double(static_cast<float>(v.i)) : double(v.i)), 0};
    }
    if (to == Class::kI64) return {0, truncated_int(dtype, v.f)};
    return {round_(dtype, v.f), 0};
  }

  Scalar arithmetic(const Instr& i, Class cls, const Scalar* s) const {
    if (cls == Class::kI64)
      return {0, round_(i.dtype, int_op(i.dtype, i.op, s[0].i, s[1].i, s[2].i))};
    if (!is_float(i.dtype) && is_integers_own(i.op))
      return {double(wrapped_int(i.dtype, int_op(i.dtype, i.op, static_cast<int64_t>(s[0].f),
                                                 static_cast<int64_t>(s[1].f), 0))),
              0};
    if (cls == Class::kF64 || round_.precision == Precision::kDouble)
      return {round_(i.dtype, float_op<double>(i.op, s[0].f, s[1].f, s[2].f)), 0};
    return {
        round_(i.dtype, double(float_op(i.op, static_cast<float>(s[0].f),
                                        static_cast<float>(s[1].f), static_cast<float>(s[2].f)))),
        0};
  }

  Scalar reduce(const Instr& i) const {
    const bool is_sum = i.op == Op::kReduceSum, is_max = i.op == Op::kReduceMax;
    const bool is_prod = i.op == Op::kReduceProd;
    if (class_of(i.dtype) == Class::kI64) return {0, round_(i.dtype, reduce_int(i))};
    const bool is_bool = i.dtype == DType::kBool;
    const double lowest = is_bool ? 0 : -HUGE_VAL;
    const double start = is_sum ? 0 : is_prod ? 1 : is_max ? lowest : HUGE_VAL;
    const auto combine = [&](auto a, auto b) {
      return is_sum ? a + b : is_prod ? a * b : is_max ? max_of(a, b) : min_of(a, b);
    };
    if (class_of(i.dtype) == Class::kF64 || round_.precision == Precision::kDouble)
      return {round_(i.dtype, lane16(i.src[0], start, combine)), 0};
    if (is_sum) return {round_(i.dtype, double(long_sum(i.src[0]))), 0};
    return {round_(i.dtype, double(lane16(i.src[0], static_cast<float>(start), combine))), 0};
  }
  // Order "lane16".
  template <class T, class F>
  T lane16(uint16_t src, T start, F&& combine) const {
    T lane[16];
    std::fill(lane, lane + 16, start);
    for (int64_t c = 0; c < space_.row_len; ++c)
      lane[c % 16] = combine(lane[c % 16], static_cast<T>(get(src, c).f));
    return joined(lane, combine);
  }
  template <class T, class F>
  static T joined(T (&lane)[16], F&& combine) {
    for (int w = 8; w > 0; w /= 2)
      for (int j = 0; j < w; ++j) lane[j] = combine(lane[j], lane[j + w]);
    return lane[0];
  }
  // The same of f32, whose chains go into totals in f64 on the way.
  float long_sum(uint16_t src) const {
    float lane[16] = {};
    double total[16] = {};
    for (int64_t c = 0; c < space_.row_len; ++c) {
      const int64_t j = c % 16;
      if (c / 16 % kSumPart == 0) total[j] += static_cast<double>(lane[j]), lane[j] = 0;
      lane[j] += static_cast<float>(get(src, c).f);
    }
    for (int j = 0; j < 16; ++j)
      lane[j] = static_cast<float>(total[j] + static_cast<double>(lane[j]));
    return joined(lane, [](float a, float b) { return a + b; });
  }
  int64_t reduce_int(const Instr& i) const {
    int64_t total = i.op == Op::kReduceSum    ? 0
                    : i.op == Op::kReduceProd ? 1
                    : i.op == Op::kReduceMax  ? least_int(i.dtype)
                                              : greatest_int(i.dtype);
    for (int64_t c = 0; c < space_.row_len; ++c) {
      const int64_t v = get(i.src[0], c).i;
      total = i.op == Op::kReduceSum    ? int_op(i.dtype, Op::kAdd, total, v, 0)
              : i.op == Op::kReduceProd ? int_op(i.dtype, Op::kMul, total, v, 0)
              : i.op == Op::kReduceMax  ? std::max(total, v)
                                        : std::min(total, v);
    }
    return total;
  }

  const Program& p_;
  const Space& space_;
  const std::span<const TensorRef> in_, out_;
  const Rounder round_;
  const std::vector<Extent> extent_;
  std::vector<std::vector<Scalar>> values_;
};

}  // namespace

Status run_reference(const Program& p, std::span<const TensorRef> in,
                     std::span<const TensorRef> out, Precision precision) {
  const Space space = TEGULA_TRY(space_of(p, in, out));
  // Through a pool, because that is what flushes denormals.
  ThreadPool(1).parallel_for(1, [&](int64_t, int) { Machine(p, space, in, out, precision).run(); });
  return {};
}

}  // namespace tegula::tile
