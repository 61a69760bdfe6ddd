// Random tile programs and shapes.
#pragma once

#include "tests/tile/harness.h"

namespace tegula::tile {

// Functions that no standard fixes to the bit.
enum class Dear {
  kF64,  // in f64 only, where reference and kernel call the same C library
  kF32,  // in the f32 class only, whose kernels on every device share one definition
};

class RandomProgram {
 public:
  RandomProgram(Rng& rng, int rank, int n_inner, int n_ops, Dear dear = Dear::kF64)
      : rng_(rng), b_(rank, n_inner), dear_(dear) {
    const int n_in = static_cast<int>(pick(rng, 1, 4));
    for (int k = 0; k < n_in; ++k) {
      const DType dtype = kAllDTypes[pick(rng, 0, 9)];
      const int64_t e = k == 0 ? 2 : pick(rng, n_inner > 0 ? 0 : 1, 3);
      const Extent extent = e == 0            ? Extent::kRow
                            : e == 1 && k > 0 ? Extent::kUniform
                                              : Extent::kFull;
      pool_.push_back(b_.load(b_.input(dtype, extent)));
    }
    for (int k = 0; k < n_ops; ++k) pool_.push_back(next());
    // Every other value, as it is, goes to an output; at most four.
    const int n_out = static_cast<int>(pick(rng, 1, 4));
    for (int k = 0; k < n_out; ++k) {
      const Reg r =
          pool_[pool_.size() - 1 -
                static_cast<size_t>(
                    pick(rng, 0, std::min<int64_t>(6, static_cast<int64_t>(pool_.size()) - 1)))];
      b_.store(b_.output(r.dtype, is_row(r) && pick(rng, 0, 1) ? Extent::kRow : Extent::kFull), r);
    }
  }
  Result<Program> finish() { return b_.finish(); }

 private:
  Reg any() {
    return pool_[static_cast<size_t>(pick(rng_, 0, static_cast<int64_t>(pool_.size()) - 1))];
  }
  // A value of dtype t: one that is there, or a cast, or a constant.
  Reg of(DType t) {
    for (int tries = 0; tries < 4; ++tries)
      if (const Reg r = any(); r.dtype == t) return r;
    if (pick(rng_, 0, 4) == 0) return b_.constant(static_cast<double>(pick(rng_, -8, 8)) / 4, t);
    return b_.cast(any(), t);
  }
  bool is_row(Reg r) const { return rows_.size() > r.id && rows_[r.id]; }
  void mark_row(Reg r) {
    if (rows_.size() <= r.id) rows_.resize(r.id + 1u);
    rows_[r.id] = true;
  }

  Reg next() {
    const Reg a = any();
    const bool f64 = a.dtype == DType::kF64, is_f = is_float(a.dtype),
               is_bool = a.dtype == DType::kBool;
    switch (pick(rng_, 0, 9)) {
      case 0: {
        const Op exact[] = {Op::kCopy, Op::kNeg,   Op::kAbs,   Op::kSign,
                            Op::kRelu, Op::kFloor, Op::kRound, Op::kTrunc};
        const Op floats[] = {Op::kSqrt, Op::kRsqrt, Op::kReciprocal};
        const Op dear[] = {Op::kExp,   Op::kLog,   Op::kTanh,  Op::kSigmoid, Op::kErf,   Op::kSin,
                           Op::kCos,   Op::kGelu,  Op::kSilu,  Op::kExp2,    Op::kExpm1, Op::kLog2,
                           Op::kLog10, Op::kLog1p, Op::kTan,   Op::kAsin,    Op::kAcos,  Op::kAtan,
                           Op::kSinh,  Op::kCosh,  Op::kAsinh, Op::kAcosh,   Op::kAtanh, Op::kErfc};
        const bool may = dear_ == Dear::kF64 ? f64 : is_f && !f64;
        if (may && pick(rng_, 0, 1)) return b_.unary(dear[pick(rng_, 0, 23)], a);
        if (is_f && pick(rng_, 0, 2) == 0) return b_.unary(floats[pick(rng_, 0, 2)], a);
        return b_.unary(exact[pick(rng_, 0, 7)], a);
      }
      case 1:
      case 2:
      case 3: {
        const Op ops[] = {Op::kAdd,       Op::kSub,         Op::kMul,   Op::kDiv,
                          Op::kMax,       Op::kMin,         Op::kPow,   Op::kFmod,
                          Op::kRemainder, Op::kFloorDivide, Op::kHypot, Op::kCopysign};
        const Op bits[] = {Op::kBitAnd, Op::kBitOr, Op::kBitXor, Op::kShiftLeft, Op::kShiftRight};
        if (!is_f && pick(rng_, 0, 3) == 0)
          return b_.binary(bits[pick(rng_, 0, 4)], a, of(a.dtype));
        const Op op = ops[pick(rng_, 0, is_f ? 11 : 9)];
        if (dear_ == Dear::kF32 && f64 && (op == Op::kPow || op == Op::kHypot))
          return b_.binary(Op::kAdd, a, of(a.dtype));
        return b_.binary(op, a, of(a.dtype));
      }
      case 4: {
        const Op ops[] = {Op::kEq, Op::kNe, Op::kLt, Op::kLe, Op::kGt, Op::kGe};
        return b_.binary(ops[pick(rng_, 0, 5)], a, of(a.dtype));
      }
      case 5: {
        if (!is_bool) return b_.select(of(DType::kBool), a, of(a.dtype));
        if (pick(rng_, 0, 2) == 0) return b_.unary(Op::kLogicalNot, a);
        return b_.binary(pick(rng_, 0, 1) ? Op::kLogicalAnd : Op::kLogicalOr, a, of(DType::kBool));
      }
      case 6:
        return b_.fma(a, of(a.dtype), of(a.dtype));
      case 7:
        if (pick(rng_, 0, 3) == 0)
          return b_.widen(a, b_.n_inner() && pick(rng_, 0, 1) ? Extent::kRow : Extent::kFull);
        return b_.cast(a, kAllDTypes[pick(rng_, 0, 9)]);
      case 8: {
        const int64_t kind = pick(rng_, 0, 3);
        if (kind == 0 && b_.rank() > 0)
          return b_.iota(static_cast<int>(pick(rng_, 0, b_.rank() - 1)),
                         kAllDTypes[pick(rng_, 0, 9)]);
        if (kind == 1)
          return b_.index(pick(rng_, 0, 1) ? DType::kI64 : DType::kI32,
                          b_.n_inner() && pick(rng_, 0, 1) ? Extent::kRow : Extent::kFull);
        const Reg seed = b_.constant_int(pick(rng_, INT64_MIN, INT64_MAX));
        if (kind == 2) return b_.random_uniform(seed, pick(rng_, 0, INT64_MAX));
        return b_.random_uniform(seed, 3, DType::kF32, of(DType::kI64));
      }
      default: {
        if (b_.n_inner() == 0) return of(DType::kF32);
        const Op ops[] = {Op::kReduceSum, Op::kReduceMax, Op::kReduceMin, Op::kReduceProd};
        const Reg r = b_.reduce(ops[pick(rng_, 0, is_f || size_bits(a.dtype) > 8 ? 3 : 2)], a);
        mark_row(r);
        return r;
      }
    }
  }

  Rng& rng_;
  Builder b_;
  const Dear dear_;
  std::vector<Reg> pool_;
  std::vector<bool> rows_;
};

inline std::vector<int64_t> random_shape(Rng& rng, int rank, int n_inner, int64_t max_inner) {
  const int64_t sizes[] = {1, 2, 3, 5, 16, 17, 33};
  std::vector<int64_t> shape;
  for (int d = 0; d < rank; ++d)
    shape.push_back(pick(rng, 0, 40) == 0 ? 0 : sizes[pick(rng, 0, rank > 2 ? 4 : 6)]);
  if (rank > 0 && pick(rng, 0, 1)) shape.back() = pick(rng, 1, n_inner ? max_inner : 2500);
  return shape;
}

}  // namespace tegula::tile
