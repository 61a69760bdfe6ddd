// The vocabulary of model code: maths on Vars. Each function adds one node (or a few views).
//
// Elementwise functions broadcast as NumPy does, by stride-0 views. All of them report errors
// through the builder (see ir/builder.h) and carry the caller's source location.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "tegula/ir/builder.h"

namespace tegula {

// Constants. `fill` makes a scalar constant and broadcasts it.
Var constant(Builder& b, double value, DType dtype, Loc loc = Loc::current());
Var fill(Builder& b, double value, const Type& type, Loc loc = Loc::current());
Var constant_ints(Builder& b, std::vector<int64_t> values, DType dtype, Loc loc = Loc::current());
Var zeros_like(Var x, Loc loc = Loc::current());
// 0, 1, 2, … along `dim` of a tensor of that shape.
Var iota(Builder& b, const Shape& shape, int dim, DType dtype, Loc loc = Loc::current());
// Uniform in [0, 1) at (seed, stream, row-major index); seed: an i64 scalar Var.
Var random_uniform(Var seed, const Shape& shape, int64_t stream, DType dtype = DType::kF32,
                   Loc loc = Loc::current());
// The extent of a dim at run time, as a scalar.
Var extent(Var x, int dim, DType dtype, Loc loc = Loc::current());

// Views: metadata only, no bytes move. One size of a new shape may be -1: what is left.
Var reshape(Var x, const Shape& shape, Loc loc = Loc::current());
Var permute(Var x, std::vector<int64_t> order, Loc loc = Loc::current());
Var transpose(Var x, int a, int b, Loc loc = Loc::current());
// Elements start, start+step, … of `dim`, `size` of them; step may be negative.
Var slice(Var x, int dim, int64_t start, Dim size, int64_t step = 1, Loc loc = Loc::current());
// NumPy broadcasting to `shape` (dims aligned at the right).
Var broadcast(Var x, const Shape& shape, Loc loc = Loc::current());
Var unsqueeze(Var x, int dim, Loc loc = Loc::current());
Var squeeze(Var x, int dim, Loc loc = Loc::current());

// Data movement.
Var pad(Var x, int dim, int64_t lo, int64_t hi, int64_t interior, double value,
        Loc loc = Loc::current());
Var concat(std::span<const Var> xs, int dim, Loc loc = Loc::current());

// Elementwise, by the ops of their names.
Var emit_unary(const OpDef& op, const Var& x, Loc loc);
Var emit_binary(const OpDef& op, const Var& x, const Var& y, Loc loc);  // broadcast to one shape
Var emit_binary(const OpDef& op, const Var& x, double y, Loc loc);      // y in x's dtype
#define TEGULA_UNARY(name)      \
  extern const OpDef name##_op; \
  inline Var name(const Var& x, Loc loc = Loc::current()) { return emit_unary(name##_op, x, loc); }
TEGULA_UNARY(neg)
TEGULA_UNARY(abs)
TEGULA_UNARY(sign)
TEGULA_UNARY(exp)
TEGULA_UNARY(log)
TEGULA_UNARY(sqrt)
TEGULA_UNARY(rsqrt)
TEGULA_UNARY(reciprocal)
TEGULA_UNARY(tanh)
TEGULA_UNARY(sigmoid)
TEGULA_UNARY(erf)
TEGULA_UNARY(sin)
TEGULA_UNARY(cos)
TEGULA_UNARY(floor)
TEGULA_UNARY(relu)
TEGULA_UNARY(gelu)  // by tanh
TEGULA_UNARY(silu)
TEGULA_UNARY(logical_not)
TEGULA_UNARY(round)  // halves to even
TEGULA_UNARY(trunc)
TEGULA_UNARY(exp2)
TEGULA_UNARY(expm1)
TEGULA_UNARY(log2)
TEGULA_UNARY(log10)
TEGULA_UNARY(log1p)
TEGULA_UNARY(tan)
TEGULA_UNARY(asin)
TEGULA_UNARY(acos)
TEGULA_UNARY(atan)
TEGULA_UNARY(sinh)
TEGULA_UNARY(cosh)
TEGULA_UNARY(asinh)
TEGULA_UNARY(acosh)
TEGULA_UNARY(atanh)
TEGULA_UNARY(erfc)
#undef TEGULA_UNARY
// x/2 · erfc(-x/√2): what torch calls gelu without an approximation.
Var gelu_erf(Var x, Loc loc = Loc::current());
Var bitwise_not(Var x, Loc loc = Loc::current());  // of integers all bits, of bool the truth
#define TEGULA_BINARY(name)                                               \
  extern const OpDef name##_op;                                           \
  inline Var name(const Var& x, const Var& y, Loc loc = Loc::current()) { \
    return emit_binary(name##_op, x, y, loc);                             \
  }                                                                       \
  inline Var name(const Var& x, double y, Loc loc = Loc::current()) {     \
    return emit_binary(name##_op, x, y, loc);                             \
  }
TEGULA_BINARY(add)
TEGULA_BINARY(sub)
TEGULA_BINARY(mul)
TEGULA_BINARY(div)
TEGULA_BINARY(max)
TEGULA_BINARY(min)
TEGULA_BINARY(pow)
TEGULA_BINARY(eq)
TEGULA_BINARY(ne)
TEGULA_BINARY(lt)
TEGULA_BINARY(le)
TEGULA_BINARY(gt)
TEGULA_BINARY(ge)
TEGULA_BINARY(logical_and)
TEGULA_BINARY(logical_or)
// x - y·trunc(x / y), the sign of x, as in C; x - y·floor(x / y), the sign of y, as Python's %; its
// quotient, as Python's //. Integers by 0: x, x, and the largest value (x < 0: the smallest).
TEGULA_BINARY(fmod)
TEGULA_BINARY(remainder)
TEGULA_BINARY(floor_divide)
TEGULA_BINARY(atan2)
TEGULA_BINARY(hypot)
TEGULA_BINARY(copysign)
// For integers; and, or and xor for bool too. A shift by less than 0, or by the width and more,
// leaves 0, or -1 of a negative number shifted right.
TEGULA_BINARY(bitwise_and)
TEGULA_BINARY(bitwise_or)
TEGULA_BINARY(bitwise_xor)
TEGULA_BINARY(shift_left)
TEGULA_BINARY(shift_right)
#undef TEGULA_BINARY
Var select(Var condition, Var if_true, Var if_false, Loc loc = Loc::current());
Var fma(Var a, Var b, Var c, Loc loc = Loc::current());  // a·b + c, rounded once
Var cast(Var x, DType dtype, Loc loc = Loc::current());  // the value itself if already so
// x, but hidden from CSE, folding and reordering: it is computed only after `after` is known.
std::vector<Var> barrier(std::span<const Var> xs, std::span<const Var> after,
                         Loc loc = Loc::current());

// An operator has no default argument: its source location is the builder's override, or here.
Var operator+(const Var& x, const Var& y);
Var operator-(const Var& x, const Var& y);
Var operator*(const Var& x, const Var& y);
Var operator/(const Var& x, const Var& y);
Var operator+(const Var& x, double y);
Var operator-(const Var& x, double y);
Var operator*(const Var& x, double y);
Var operator/(const Var& x, double y);
Var operator*(double x, const Var& y);
Var operator+(double x, const Var& y);
Var operator-(double x, const Var& y);
Var operator/(double x, const Var& y);
Var operator-(const Var& x);

// Reductions over `dims` (negative counts from the end); keep: extent 1 remains.
Var reduce_sum(Var x, std::vector<int64_t> dims, bool keep = false, Loc loc = Loc::current());
Var reduce_max(Var x, std::vector<int64_t> dims, bool keep = false, Loc loc = Loc::current());
Var reduce_min(Var x, std::vector<int64_t> dims, bool keep = false, Loc loc = Loc::current());
Var reduce_mean(Var x, std::vector<int64_t> dims, bool keep = false, Loc loc = Loc::current());
// Integers below i32, and bool, are multiplied as i64.
Var reduce_prod(Var x, std::vector<int64_t> dims, bool keep = false, Loc loc = Loc::current());
// The mean of (x - mean)², with n - correction for n: 1 is unbiased, 0 the population's; its root.
Var reduce_var(Var x, std::vector<int64_t> dims, double correction = 1, bool keep = false,
               Loc loc = Loc::current());
Var reduce_std(Var x, std::vector<int64_t> dims, double correction = 1, bool keep = false,
               Loc loc = Loc::current());
// Sums x down to `shape`, which broadcasts to x's: the adjoint of broadcast.
Var reduce_to(Var x, const Shape& shape, Loc loc = Loc::current());

// The index (i32) of the largest, or smallest, element along `dim`; the lowest among equals; NaN is
// found before any number. A scalar has index 0.
Var argmax(Var x, int dim = -1, bool keep = false, Loc loc = Loc::current());
Var argmin(Var x, int dim = -1, bool keep = false, Loc loc = Loc::current());
// Sums of everything up to each element (in reverse: from it) along `dim`.
Var cumsum(Var x, int dim, bool reverse = false, Loc loc = Loc::current());

// Over the last dim; a scalar is a row of one. logsumexp drops it, and is f32 (f64 for f64).
Var softmax(Var x, Loc loc = Loc::current());
Var log_softmax(Var x, Loc loc = Loc::current());
Var logsumexp(Var x, Loc loc = Loc::current());

// A general contraction, e.g. dot("b m k, b k n -> b m n", x, w). See ops/dot.cpp.
Var dot(std::string_view dims, Var a, Var b, Loc loc = Loc::current());
Var dot(std::string_view dims, Var a, Var b, DType out, Loc loc = Loc::current());
// x @ w: [... k] · [k n] -> [... n].
Var matmul(Var x, Var w, Loc loc = Loc::current());

}  // namespace tegula
