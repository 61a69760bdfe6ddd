#include "tegula/tile/builder.h"

#include <bit>

#include "tegula/base/integer.h"

namespace tegula::tile {

Builder::Builder(int rank, int n_inner) {
  program_.rank = rank;
  program_.n_inner = n_inner;
}

Reg Builder::fail(std::string message) {
  if (!error_) error_ = invalid_argument(cat("tile builder: ", message));
  return {};
}

bool Builder::check(Reg r, const char* what) {
  if (error_) return false;
  if (r.builder != this || r.id == kNoValue) {
    fail(cat(what, " is not a value of this builder"));
    return false;
  }
  return true;
}

Reg Builder::emit(Instr instr) {
  if (error_) return {};
  if (program_.code.size() >= size_t{kMaxInstrs})
    return fail(cat("more than ", kMaxInstrs, " instructions: split the group"));
  program_.code.push_back(instr);
  return {this, static_cast<uint16_t>(program_.code.size() - 1), instr.dtype};
}

int Builder::input(DType dtype, Extent extent) {
  program_.inputs.push_back({dtype, extent});
  return static_cast<int>(program_.inputs.size() - 1);
}

int Builder::output(DType dtype, Extent extent) {
  program_.outputs.push_back({dtype, extent});
  return static_cast<int>(program_.outputs.size() - 1);
}

Reg Builder::load(int input) {
  if (input < 0 || static_cast<size_t>(input) >= program_.inputs.size())
    return fail(cat("load: there is no in", input));
  const DType dtype = program_.inputs[static_cast<size_t>(input)].dtype;
  for (size_t v = 0; v < program_.code.size(); ++v) {
    const Instr& i = program_.code[v];
    if (i.op == Op::kLoad && i.imm == input) return {this, static_cast<uint16_t>(v), dtype};
  }
  return emit({Op::kLoad, dtype, {kNoValue, kNoValue, kNoValue}, input});
}

void Builder::store(int output, Reg value) {
  if (!check(value, "store: the value")) return;
  if (output < 0 || static_cast<size_t>(output) >= program_.outputs.size()) {
    fail(cat("store: there is no out", output));
    return;
  }
  const DType dtype = program_.outputs[static_cast<size_t>(output)].dtype;
  emit({Op::kStore, dtype, {value.id, kNoValue, kNoValue}, output});
}

Reg Builder::constant(double value, DType dtype) {
  if (class_of(dtype) == Class::kI64) return constant_int(truncated_int(dtype, value), dtype);
  for (size_t v = 0; v < program_.code.size(); ++v) {
    const Instr& i = program_.code[v];
    if (i.op == Op::kConstant && i.dtype == dtype &&
        std::bit_cast<uint64_t>(i.value) == std::bit_cast<uint64_t>(value))
      return {this, static_cast<uint16_t>(v), dtype};
  }
  return emit({Op::kConstant, dtype, {kNoValue, kNoValue, kNoValue}, 0, value});
}

Reg Builder::constant_int(int64_t value, DType dtype) {
  if (class_of(dtype) != Class::kI64) return constant(static_cast<double>(value), dtype);
  for (size_t v = 0; v < program_.code.size(); ++v) {
    const Instr& i = program_.code[v];
    if (i.op == Op::kConstant && i.dtype == dtype && i.imm == value)
      return {this, static_cast<uint16_t>(v), dtype};
  }
  return emit({Op::kConstant, dtype, {kNoValue, kNoValue, kNoValue}, value});
}

Reg Builder::widen(Reg x, Extent to) {
  if (!check(x, "widen: the value")) return {};
  return emit({Op::kCopy, x.dtype, {x.id, kNoValue, kNoValue}, static_cast<int64_t>(to)});
}

Reg Builder::iota(int dim, DType dtype) {
  const bool is_int = class_of(dtype) == Class::kI64;
  const Reg r =
      emit({Op::kIota, is_int ? dtype : DType::kI64, {kNoValue, kNoValue, kNoValue}, dim});
  return is_int ? r : cast(r, dtype);
}

Reg Builder::index(DType dtype, Extent of) {
  const bool is_int = class_of(dtype) == Class::kI64;
  const int64_t imm = of == Extent::kRow ? static_cast<int64_t>(of) : 0;
  const Reg r =
      emit({Op::kIndex, is_int ? dtype : DType::kI64, {kNoValue, kNoValue, kNoValue}, imm});
  return is_int ? r : cast(r, dtype);
}

Reg Builder::random_uniform(Reg seed, int64_t stream, DType dtype, std::optional<Reg> index) {
  if (!check(seed, "random_uniform: the seed")) return {};
  if (index && !check(*index, "random_uniform: the index")) return {};
  const uint16_t at = index ? index->id : kNoValue;
  return cast(emit({Op::kRandomUniform, DType::kF32, {seed.id, at, kNoValue}, stream}), dtype);
}

Reg Builder::unary(Op op, Reg x, std::optional<DType> dtype) {
  if (!check(x, "the operand")) return {};
  return emit({op, dtype.value_or(x.dtype), {x.id, kNoValue, kNoValue}});
}

Reg Builder::binary(Op op, Reg a, Reg b, std::optional<DType> dtype) {
  if (!check(a, "the left operand") || !check(b, "the right operand")) return {};
  const bool is_bool = op_info(op).kind == Kind::kCompare || op_info(op).kind == Kind::kLogical;
  if (!dtype && !is_bool && a.dtype != b.dtype)
    return fail(cat(op_info(op).name, ": ", dtype_name(a.dtype), " and ", dtype_name(b.dtype),
                    " differ: cast one, or say the result's dtype"));
  return emit({op, is_bool ? DType::kBool : dtype.value_or(a.dtype), {a.id, b.id, kNoValue}});
}

Reg Builder::select(Reg condition, Reg if_true, Reg if_false) {
  if (!check(condition, "select: the condition") || !check(if_true, "select: the first value") ||
      !check(if_false, "select: the second value"))
    return {};
  if (if_true.dtype != if_false.dtype)
    return fail(cat("select: ", dtype_name(if_true.dtype), " and ", dtype_name(if_false.dtype),
                    " differ: cast one"));
  return emit({Op::kSelect, if_true.dtype, {condition.id, if_true.id, if_false.id}});
}

Reg Builder::fma(Reg a, Reg b, Reg c, std::optional<DType> dtype) {
  if (!check(a, "fma: a") || !check(b, "fma: b") || !check(c, "fma: c")) return {};
  if (!dtype && (a.dtype != b.dtype || a.dtype != c.dtype))
    return fail("fma: the operands' dtypes differ: cast, or say the result's dtype");
  return emit({Op::kFma, dtype.value_or(a.dtype), {a.id, b.id, c.id}});
}

Reg Builder::cast(Reg x, DType dtype) {
  if (!check(x, "cast: the operand")) return {};
  return x.dtype == dtype ? x : emit({Op::kCast, dtype, {x.id, kNoValue, kNoValue}});
}

Reg Builder::reduce(Op op, Reg x, std::optional<DType> dtype) {
  if (op_info(op).kind != Kind::kReduce) return fail(cat(op_info(op).name, " is no reduction"));
  return unary(op, x, dtype);
}

Result<Program> Builder::finish() {
  if (error_) return *error_;
  // Live code in order, stores last; numbers change.
  const size_t n = program_.code.size();
  std::vector<bool> live(n, false);
  for (size_t v = n; v-- > 0;) {
    const Instr& i = program_.code[v];
    if (i.op == Op::kStore) live[v] = true;
    if (!live[v]) continue;
    for (uint16_t s : i.src)
      if (s != kNoValue) live[s] = true;
  }
  Program out;
  out.rank = program_.rank, out.n_inner = program_.n_inner;
  out.inputs = std::move(program_.inputs), out.outputs = std::move(program_.outputs);
  std::vector<uint16_t> renamed(n, kNoValue);
  for (const bool stores : {false, true}) {
    for (size_t v = 0; v < n; ++v) {
      Instr i = program_.code[v];
      if (!live[v] || (i.op == Op::kStore) != stores) continue;
      for (uint16_t& s : i.src)
        if (s != kNoValue) s = renamed[s];
      renamed[v] = static_cast<uint16_t>(out.code.size());
      out.code.push_back(i);
    }
  }
  program_ = {};
  TEGULA_TRY(seal(out));
  return out;
}

namespace {
Reg lift(Reg like, double v) {
  return like.valid() ? like.builder->constant(v, like.dtype) : Reg{};
}
Reg apply(Op op, Reg a, Reg b) {
  Builder* builder = a.valid() ? a.builder : b.builder;
  return builder ? builder->binary(op, a, b) : Reg{};
}
Reg apply(Op op, Reg a) { return a.valid() ? a.builder->unary(op, a) : Reg{}; }
}  // namespace

Reg operator+(Reg a, Reg b) { return apply(Op::kAdd, a, b); }
Reg operator-(Reg a, Reg b) { return apply(Op::kSub, a, b); }
Reg operator*(Reg a, Reg b) { return apply(Op::kMul, a, b); }
Reg operator/(Reg a, Reg b) { return apply(Op::kDiv, a, b); }
Reg operator-(Reg a) { return apply(Op::kNeg, a); }
Reg operator+(Reg a, double b) { return a + lift(a, b); }
Reg operator-(Reg a, double b) { return a - lift(a, b); }
Reg operator*(Reg a, double b) { return a * lift(a, b); }
Reg operator/(Reg a, double b) { return a / lift(a, b); }
Reg operator+(double a, Reg b) { return lift(b, a) + b; }
Reg operator-(double a, Reg b) { return lift(b, a) - b; }
Reg operator*(double a, Reg b) { return lift(b, a) * b; }
Reg operator/(double a, Reg b) { return lift(b, a) / b; }
Reg exp(Reg x) { return apply(Op::kExp, x); }
Reg log(Reg x) { return apply(Op::kLog, x); }
Reg sqrt(Reg x) { return apply(Op::kSqrt, x); }
Reg rsqrt(Reg x) { return apply(Op::kRsqrt, x); }
Reg tanh(Reg x) { return apply(Op::kTanh, x); }

}  // namespace tegula::tile
