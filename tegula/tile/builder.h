// Builder: writes a tile program by hand, or from the fusion pass.
//
//   Builder b(/*rank=*/2, /*n_inner=*/1);                       // softmax over the last dim
//   Reg x = b.load(b.input(DType::kF32));
//   Reg e = exp(x - b.reduce(Op::kReduceMax, x));
//   b.store(b.output(DType::kF32), e / b.reduce(Op::kReduceSum, e));
//   Program p = TEGULA_TRY(b.finish());
//
// Results take the dtype of their sources, which must agree; `cast` changes it, and unary, binary,
// fma and reduce take another result dtype of the same class (bf16 · bf16 → f32, say).
// The first error is kept and returned by finish(); later calls are harmless.
// finish() drops dead code, puts stores last (a tile loads before it stores, hence in-place is
// safe), and seals. Loads and constants are made once however often they are asked for.
#pragma once

#include <optional>
#include <string>

#include "tegula/tile/program.h"

namespace tegula::tile {

class Builder;

// A value of a builder. Invalid after an error.
struct Reg {
  Builder* builder = nullptr;
  uint16_t id = kNoValue;
  DType dtype = DType::kF32;
  bool valid() const { return builder != nullptr && id != kNoValue; }
};

class Builder {
 public:
  explicit Builder(int rank, int n_inner = 0);
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  int input(DType dtype, Extent extent = Extent::kFull);
  int output(DType dtype, Extent extent = Extent::kFull);

  Reg load(int input);
  void store(int output, Reg value);

  Reg constant(double value, DType dtype);
  Reg constant_int(int64_t value, DType dtype = DType::kI64);
  // The element's index along a dim of the iteration space, and its row-major linear index (with
  // Extent::kRow: its row's).
  Reg iota(int dim, DType dtype = DType::kI64);
  Reg index(DType dtype = DType::kI64, Extent of = Extent::kFull);
  // philox_uniform(seed, stream, index); seed: a uniform i64. Without `index`: b.index().
  Reg random_uniform(Reg seed, int64_t stream, DType dtype = DType::kF32,
                     std::optional<Reg> index = std::nullopt);

  Reg unary(Op op, Reg x, std::optional<DType> dtype = std::nullopt);
  Reg binary(Op op, Reg a, Reg b, std::optional<DType> dtype = std::nullopt);  // compares too
  Reg select(Reg condition, Reg if_true, Reg if_false);
  Reg fma(Reg a, Reg b, Reg c, std::optional<DType> dtype = std::nullopt);
  Reg cast(Reg x, DType dtype);  // x itself if already so
  Reg widen(Reg x, Extent to);   // x, from there on computed with at that extent at least
  Reg reduce(Op op, Reg x, std::optional<DType> dtype = std::nullopt);

  int rank() const { return program_.rank; }
  int n_inner() const { return program_.n_inner; }
  bool ok() const { return !error_.has_value(); }
  // Keeps `message` as the builder's error, if it is the first; gives an invalid Reg.
  Reg fail(std::string message);

  // The program; the builder is empty afterwards.
  Result<Program> finish();

 private:
  Reg emit(Instr instr);
  bool check(Reg r, const char* what);

  Program program_;
  std::optional<Error> error_;
};

Reg operator+(Reg a, Reg b);
Reg operator-(Reg a, Reg b);
Reg operator*(Reg a, Reg b);
Reg operator/(Reg a, Reg b);
Reg operator-(Reg a);
// The number becomes a constant of the other operand's dtype.
Reg operator+(Reg a, double b);
Reg operator-(Reg a, double b);
Reg operator*(Reg a, double b);
Reg operator/(Reg a, double b);
Reg operator+(double a, Reg b);
Reg operator-(double a, Reg b);
Reg operator*(double a, Reg b);
Reg operator/(double a, Reg b);
Reg exp(Reg x);
Reg log(Reg x);
Reg sqrt(Reg x);
Reg rsqrt(Reg x);
Reg tanh(Reg x);

}  // namespace tegula::tile
