// Program: a fused group of elementwise ops and row reductions, as a list of tile instructions.
//
// The iteration space is an n-d shape given at launch; its last `n_inner` dims form a *row*. A
// program without reductions (n_inner = 0) is elementwise: its space may be cut anywhere.
// Instruction i defines value i (SSA), computed for every element of the space:
//   full     one value per element: loads of full operands, iota of an inner dim, index, random
//            (row-major index of the element, unless an index is given)
//   row      one value per row: reductions, loads of row operands, iota of an outer dim of a
//            program with rows, index of the row, arithmetic on those
//   uniform  one value per launch: constants, scalar operands, arithmetic on those
// An instruction is as wide as its widest source; narrower sources are broadcast. A copy may say
// that it is wider: then what follows is computed, and counted, at that extent.
//
// Numerics. A value is computed in the class of its dtype and then rounded to the dtype:
//   f32 class  f32, bf16, f16, f8e4m3 (nearest even), bool (≠ 0)
//   f64 class  f64
//   i64 class  i64, i32, i8, u8: all wrap; div truncates, x/0 is the end of the range, 0/0 = 0
// What fmod, remainder, floor_divide, pow and shifts give for integers: base/integer_math.h. A cast
// from a float to an integer truncates and saturates (NaN → 0), between integers it wraps. An empty
// max is the least value of its dtype, an empty min the greatest. Multiply and add never contract;
// `fma` rounds once. max, min propagate NaN; sign(NaN) = 0. Sums start from 0 (products from 1) and
// run in order "lane16": 16 partial sums over the row's linear index (partial j: elements j, j+16,
// …), then partial j takes j+8, then j+4, j+2, j+1. Before every kSumPart-th element of its own a
// partial sum of f32 goes into a total in f64 and begins anew (tile/long_sum.h). Results do not
// depend on threads, tile cuts or instruction set. Denormals are flushed.
//
// Sums over rows (column outputs) have an order of their kernel's; see `has_columns`.
//
// Cost: `flops` of op_info, per element, row or launch as the value is full, row or uniform; a
// reduction and a column output count 1 per element (their sums start from 0). Composites count
// their formula. Aliasing: an output may be the very view (address, strides) of an input, else must
// not overlap.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tegula/base/dtype.h"
#include "tegula/base/result.h"
#include "tegula/base/shared.h"

namespace tegula::tile {

enum class Op : uint8_t {
  kLoad,
  kStore,
  kConstant,
  kIota,
  kIndex,
  kRandomUniform,
  kCopy,
  kNeg,
  kAbs,
  kSign,
  kExp,
  kLog,
  kSqrt,
  kRsqrt,
  kReciprocal,
  kTanh,
  kSigmoid,
  kErf,
  kSin,
  kCos,
  kFloor,
  kRelu,
  kGelu,
  kSilu,
  kRound,
  kTrunc,
  kExp2,
  kExpm1,
  kLog2,
  kLog10,
  kLog1p,
  kTan,
  kAsin,
  kAcos,
  kAtan,
  kSinh,
  kCosh,
  kAsinh,
  kAcosh,
  kAtanh,
  kErfc,
  kLogicalNot,
  kCast,
  kAdd,
  kSub,
  kMul,
  kDiv,
  kMax,
  kMin,
  kPow,
  kFmod,
  kRemainder,
  kFloorDivide,
  kAtan2,
  kHypot,
  kCopysign,
  kBitAnd,
  kBitOr,
  kBitXor,
  kShiftLeft,
  kShiftRight,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kLogicalAnd,
  kLogicalOr,
  kSelect,
  kFma,
  kReduceSum,
  kReduceMax,
  kReduceMin,
  kReduceProd,
};
inline constexpr int kNumOps = static_cast<int>(Op::kReduceProd) + 1;

enum class Kind : uint8_t {
  kMemory,      // load, store: imm = operand
  kGenerator,   // constant, iota (imm = dim), index, random (imm = stream)
  kArithmetic,  // all sources and the result in one class
  kCompare,     // sources in one class, result bool
  kLogical,     // bool → bool
  kCast,
  kSelect,  // bool, then two values of the result's class
  kReduce,
};

struct OpInfo {
  std::string_view name;
  Kind kind;
  int n_src;
  int flops;        // per element
  bool takes_ints;  // arithmetic only: defined for integers
  bool takes_floats = true;
};

inline constexpr OpInfo kOps[kNumOps] = {
    {"load", Kind::kMemory, 0, 0, true},
    {"store", Kind::kMemory, 1, 0, true},
    {"constant", Kind::kGenerator, 0, 0, true},
    {"iota", Kind::kGenerator, 0, 0, true},
    {"index", Kind::kGenerator, 0, 0, true},
    {"random_uniform", Kind::kGenerator, 1, 0, false},  // seed (uniform i64) [, index (i64)]
    {"copy", Kind::kArithmetic, 1, 0, true},
    {"neg", Kind::kArithmetic, 1, 1, true},
    {"abs", Kind::kArithmetic, 1, 2, true},   // max(x, -x)
    {"sign", Kind::kArithmetic, 1, 0, true},  // two compares
    {"exp", Kind::kArithmetic, 1, 1, false},
    {"log", Kind::kArithmetic, 1, 1, false},
    {"sqrt", Kind::kArithmetic, 1, 1, false},
    {"rsqrt", Kind::kArithmetic, 1, 2, false},  // 1 / sqrt(x)
    {"reciprocal", Kind::kArithmetic, 1, 1, false},
    {"tanh", Kind::kArithmetic, 1, 1, false},
    {"sigmoid", Kind::kArithmetic, 1, 4, false},  // 1 / (1 + exp(-x))
    {"erf", Kind::kArithmetic, 1, 1, false},
    {"sin", Kind::kArithmetic, 1, 1, false},
    {"cos", Kind::kArithmetic, 1, 1, false},
    {"floor", Kind::kArithmetic, 1, 1, true},
    {"relu", Kind::kArithmetic, 1, 1, true},
    {"gelu", Kind::kArithmetic, 1, 8, false},  // x·½·(1 + tanh(x·(x·x·ca + c)))
    {"silu", Kind::kArithmetic, 1, 4, false},  // x / (1 + exp(-x))
    {"round", Kind::kArithmetic, 1, 1, true},  // half to even
    {"trunc", Kind::kArithmetic, 1, 1, true},
    {"exp2", Kind::kArithmetic, 1, 1, false},
    {"expm1", Kind::kArithmetic, 1, 1, false},
    {"log2", Kind::kArithmetic, 1, 1, false},
    {"log10", Kind::kArithmetic, 1, 1, false},
    {"log1p", Kind::kArithmetic, 1, 1, false},
    {"tan", Kind::kArithmetic, 1, 1, false},
    {"asin", Kind::kArithmetic, 1, 1, false},
    {"acos", Kind::kArithmetic, 1, 1, false},
    {"atan", Kind::kArithmetic, 1, 1, false},
    {"sinh", Kind::kArithmetic, 1, 1, false},
    {"cosh", Kind::kArithmetic, 1, 1, false},
    {"asinh", Kind::kArithmetic, 1, 1, false},
    {"acosh", Kind::kArithmetic, 1, 1, false},
    {"atanh", Kind::kArithmetic, 1, 1, false},
    {"erfc", Kind::kArithmetic, 1, 1, false},
    {"logical_not", Kind::kLogical, 1, 0, false},
    {"cast", Kind::kCast, 1, 0, true},
    {"add", Kind::kArithmetic, 2, 1, true},
    {"sub", Kind::kArithmetic, 2, 1, true},
    {"mul", Kind::kArithmetic, 2, 1, true},
    {"div", Kind::kArithmetic, 2, 1, true},
    {"max", Kind::kArithmetic, 2, 1, true},
    {"min", Kind::kArithmetic, 2, 1, true},
    {"pow", Kind::kArithmetic, 2, 1, true},
    {"fmod", Kind::kArithmetic, 2, 1, true},
    {"remainder", Kind::kArithmetic, 2, 1, true},
    {"floor_divide", Kind::kArithmetic, 2, 1, true},
    {"atan2", Kind::kArithmetic, 2, 1, false},
    {"hypot", Kind::kArithmetic, 2, 1, false},
    {"copysign", Kind::kArithmetic, 2, 1, false},
    {"bit_and", Kind::kArithmetic, 2, 1, true, false},
    {"bit_or", Kind::kArithmetic, 2, 1, true, false},
    {"bit_xor", Kind::kArithmetic, 2, 1, true, false},
    {"shift_left", Kind::kArithmetic, 2, 1, true, false},
    {"shift_right", Kind::kArithmetic, 2, 1, true, false},
    {"eq", Kind::kCompare, 2, 0, true},
    {"ne", Kind::kCompare, 2, 0, true},
    {"lt", Kind::kCompare, 2, 0, true},
    {"le", Kind::kCompare, 2, 0, true},
    {"gt", Kind::kCompare, 2, 0, true},
    {"ge", Kind::kCompare, 2, 0, true},
    {"logical_and", Kind::kLogical, 2, 0, false},
    {"logical_or", Kind::kLogical, 2, 0, false},
    {"select", Kind::kSelect, 3, 0, true},
    {"fma", Kind::kArithmetic, 3, 2, true},
    {"reduce_sum", Kind::kReduce, 1, 1, true},
    {"reduce_max", Kind::kReduce, 1, 1, true},
    {"reduce_min", Kind::kReduce, 1, 1, true},
    {"reduce_prod", Kind::kReduce, 1, 1, true},
};
constexpr const OpInfo& op_info(Op op) { return kOps[static_cast<int>(op)]; }
constexpr int flops_of(Op op) { return op_info(op).flops; }

enum class Class : uint8_t { kF32, kF64, kI64 };
constexpr Class class_of(DType t) {
  return t == DType::kF64 ? Class::kF64 : is_int(t) ? Class::kI64 : Class::kF32;
}

enum class Extent : uint8_t { kUniform, kRow, kFull, kColumn };

// A tensor of the launch: inputs and outputs are numbered apart, in KernelCall's order.
//   kFull     the iteration space's shape (broadcast by stride 0)
//   kRow      the same with the inner dims 1, or of stride 0
//   kUniform  inputs only: one element, whatever the shape
//   kColumn   outputs only: a sum over all rows for each position in a row, with outer dims 1
struct Operand {
  DType dtype = DType::kF32;
  Extent extent = Extent::kFull;
  friend bool operator==(const Operand&, const Operand&) = default;
};

inline constexpr uint16_t kNoValue = 0xffff;

struct Instr {
  Op op = Op::kCopy;
  DType dtype = DType::kF32;  // of the value; of the operand for store
  uint16_t src[3] = {kNoValue, kNoValue, kNoValue};
  int64_t imm = 0;  // operand, dim, stream, an integer constant's value, a copy's or index's Extent
  double value = 0;  // of a float constant
};

struct Schedule;  // how the CPU runs it: phases and registers, see schedule.h

struct Program {
  int rank = 0;     // of the iteration space
  int n_inner = 0;  // trailing dims that form a row; 0: elementwise
  std::vector<Operand> inputs, outputs;
  std::vector<Instr> code;
  // Derived by seal(). `resident` keeps what crosses a reduction in a row-sized buffer, `streamed`
  // computes it again, for rows too long to keep.
  Shared<const Schedule> resident, streamed;
};

inline constexpr int kMaxOperands = 64;
inline constexpr int kMaxInstrs = 4096;

// The extent of every value (kFull for a store of a full output).
std::vector<Extent> extents_of(const Program& p);

// Has it an output that sums over rows? Those of f32 alone, of kernels that say so.
bool has_columns(const Program& p);

// Checks everything that needs no shape. Errors (invalid_argument) name the instruction.
Status verify(const Program& p);

// Verifies and derives the schedules; builder and parser end with it.
Status seal(Program& p);

// Floating-point operations of one run over an iteration space of that shape.
int64_t flops(const Program& p, std::span<const int64_t> shape);

// Text, one line per operand and instruction; parse(to_text(p)) gives p again (sealed).
//   program rank=2 inner=1
//   in0 f32
//   out0 f32 row
//   %0 = load f32 in0
//   %1 = reduce_sum f32 %0
//   store out0 %1
std::string to_text(const Program& p);
Result<Program> parse(std::string_view text);

// Equal text; schedules do not count.
bool operator==(const Program& a, const Program& b);

}  // namespace tegula::tile
