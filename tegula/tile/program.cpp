#include "tegula/tile/program.h"

#include "tegula/base/range.h"
#include "tegula/base/shape.h"
#include "tegula/tile/schedule.h"

namespace tegula::tile {

namespace {
Extent generated(const Program& p, const Instr& i, const std::vector<Extent>& extent) {
  switch (i.op) {
    case Op::kConstant:
      return Extent::kUniform;
    case Op::kIota:
      return p.n_inner > 0 && i.imm < p.rank - p.n_inner ? Extent::kRow : Extent::kFull;
    case Op::kIndex:
      return i.imm == static_cast<int64_t>(Extent::kRow) ? Extent::kRow : Extent::kFull;
    default:  // random
      return i.src[1] == kNoValue ? Extent::kFull : extent[i.src[1]];
  }
}
}  // namespace

std::vector<Extent> extents_of(const Program& p) {
  std::vector<Extent> extent(p.code.size(), Extent::kUniform);
  for (size_t v = 0; v < p.code.size(); ++v) {
    const Instr& i = p.code[v];
    const auto k = static_cast<size_t>(i.imm);
    switch (op_info(i.op).kind) {
      case Kind::kMemory:
        extent[v] = i.op == Op::kLoad ? p.inputs[k].extent : p.outputs[k].extent;
        if (extent[v] == Extent::kColumn) extent[v] = Extent::kFull;  // of what it sums
        break;
      case Kind::kGenerator:
        extent[v] = generated(p, i, extent);
        break;
      case Kind::kReduce:
        extent[v] = Extent::kRow;
        break;
      default:
        for (uint16_t s : i.src)
          if (s != kNoValue) extent[v] = std::max(extent[v], extent[s]);
        if (i.op == Op::kCopy) extent[v] = std::max(extent[v], static_cast<Extent>(i.imm));
    }
  }
  return extent;
}

bool has_columns(const Program& p) {
  return any_of(p.outputs, [](const Operand& o) { return o.extent == Extent::kColumn; });
}

namespace {

// The checks of one instruction; a message, or empty.
class Verifier {
 public:
  explicit Verifier(const Program& p) : p_(p) {}

  Status run() {
    if (std::string m = header(); !m.empty()) return invalid_argument(cat("tile program: ", m));
    for (size_t v = 0; v < p_.code.size(); ++v) {
      std::string m = sources(v);
      if (m.empty()) m = instr(p_.code[v]);
      if (!m.empty())
        return invalid_argument(
            cat("tile program, instruction ", v, " (", op_info(p_.code[v].op).name, "): ", m));
    }
    const std::vector<Extent> extent = extents_of(p_);
    bool has_full = false;
    for (size_t v = 0; v < p_.code.size(); ++v) {
      std::string m = widths(v, extent);
      if (!m.empty())
        return invalid_argument(
            cat("tile program, instruction ", v, " (", op_info(p_.code[v].op).name, "): ", m));
    }
    for (const auto* list : {&p_.inputs, &p_.outputs})
      for (const Operand& o : *list) has_full |= o.extent == Extent::kFull;
    if (!has_full)
      return invalid_argument("tile program: no operand has the extent of the iteration space");
    return {};
  }

 private:
  std::string header() {
    if (p_.rank < 0 || p_.rank > kMaxRank) return cat("rank ", p_.rank, " is not in [0, 8]");
    if (p_.n_inner < 0 || p_.n_inner > p_.rank)
      return cat("inner ", p_.n_inner, " is not in [0, rank = ", p_.rank, "]");
    if (p_.inputs.size() + p_.outputs.size() > size_t{kMaxOperands})
      return cat(p_.inputs.size() + p_.outputs.size(), " operands, at most ", kMaxOperands);
    if (p_.code.size() > size_t{kMaxInstrs})
      return cat(p_.code.size(), " instructions, at most ", kMaxInstrs, ": split the group");
    if (p_.outputs.empty()) return "there is no output";
    for (const auto* list : {&p_.inputs, &p_.outputs})
      for (const Operand& o : *list)
        if (o.extent == Extent::kRow && p_.n_inner == 0)
          return "a row operand needs inner dims, and the program is elementwise";
    for (const Operand& o : p_.outputs)
      if (o.extent == Extent::kUniform) return "an output is full, row or column, never uniform";
    for (const Operand& o : p_.inputs)
      if (o.extent == Extent::kColumn) return "an input is full, row or uniform, never column";
    for (const Operand& o : p_.outputs) {
      if (o.extent != Extent::kColumn) continue;
      if (p_.n_inner == 0 || p_.n_inner == p_.rank) return "a column output needs rows to sum";
      if (o.dtype != DType::kF32)
        return cat("a column output is f32, not ", dtype_name(o.dtype), ": cast before and after");
    }
    stored_.assign(p_.outputs.size(), false);
    for (const Instr& i : p_.code)
      if (i.op == Op::kStore && i.imm >= 0 && static_cast<size_t>(i.imm) < stored_.size()) {
        if (stored_[i.imm]) return cat("out", i.imm, " is stored twice");
        stored_[i.imm] = true;
      }
    for (size_t k = 0; k < stored_.size(); ++k)
      if (!stored_[k]) return cat("out", k, " is never stored");
    return "";
  }

  std::string sources(size_t v) {
    const Instr& i = p_.code[v];
    const int n = op_info(i.op).n_src;
    for (int k = 0; k < 3; ++k) {
      const uint16_t s = i.src[k];
      const bool optional = i.op == Op::kRandomUniform && k == 1;
      if (s == kNoValue) {
        if (k < n) return cat("takes ", n, " sources, got ", k);
        continue;
      }
      if (k >= n && !optional) return cat("takes ", n, " sources, got ", k + 1);
      if (s >= v) return cat("source %", s, " is not defined before it");
      if (p_.code[s].op == Op::kStore) return cat("source %", s, " is a store, which has no value");
    }
    return "";
  }

  DType src(const Instr& i, int k) const { return p_.code[i.src[k]].dtype; }

  std::string instr(const Instr& i) const {
    const OpInfo& info = op_info(i.op);
    const Class cls = class_of(i.dtype);
    switch (info.kind) {
      case Kind::kMemory:
        return memory(i);
      case Kind::kGenerator:
        return generator(i);
      case Kind::kArithmetic:
      case Kind::kReduce:
        if (!info.takes_ints && !is_float(i.dtype))
          return cat("is for floats, not ", dtype_name(i.dtype));
        if (!info.takes_floats && is_float(i.dtype))
          return cat("is for integers, not ", dtype_name(i.dtype));
        for (int k = 0; k < info.n_src; ++k)
          if (class_of(src(i, k)) != cls)
            return cat("source ", k, " is ", dtype_name(src(i, k)), ", the result ",
                       dtype_name(i.dtype), ": cast first");
        return "";
      case Kind::kCompare:
        if (class_of(src(i, 0)) != class_of(src(i, 1)))
          return cat("compares ", dtype_name(src(i, 0)), " with ", dtype_name(src(i, 1)),
                     ": cast first");
        return i.dtype == DType::kBool ? "" : "gives bool";
      case Kind::kLogical:
        for (int k = 0; k < info.n_src; ++k)
          if (src(i, k) != DType::kBool)
            return cat("takes bool, not ", dtype_name(src(i, k)), ": compare with 0 first");
        return i.dtype == DType::kBool ? "" : "gives bool";
      case Kind::kCast:
        return "";
      case Kind::kSelect:
        if (src(i, 0) != DType::kBool)
          return cat("the condition is ", dtype_name(src(i, 0)), ", not bool");
        for (int k = 1; k < 3; ++k)
          if (class_of(src(i, k)) != cls)
            return cat("source ", k, " is ", dtype_name(src(i, k)), ", the result ",
                       dtype_name(i.dtype), ": cast first");
        return "";
    }
    return "";
  }

  std::string memory(const Instr& i) const {
    const bool is_load = i.op == Op::kLoad;
    const auto& list = is_load ? p_.inputs : p_.outputs;
    if (i.imm < 0 || static_cast<size_t>(i.imm) >= list.size())
      return cat("there is no ", is_load ? "in" : "out", i.imm);
    const DType operand = list[i.imm].dtype;
    if (i.dtype != operand)
      return cat("has dtype ", dtype_name(i.dtype), ", its operand ", dtype_name(operand));
    if (!is_load && src(i, 0) != operand)
      return cat("the value is ", dtype_name(src(i, 0)), ", the output ", dtype_name(operand),
                 ": cast first");
    return "";
  }

  std::string generator(const Instr& i) const {
    if (i.op == Op::kIota || i.op == Op::kIndex) {
      if (class_of(i.dtype) != Class::kI64) return "gives an integer: cast after";
      if (i.op == Op::kIota && (i.imm < 0 || i.imm >= p_.rank))
        return cat("dim ", i.imm, " is not in [0, rank = ", p_.rank, ")");
    } else if (i.op == Op::kRandomUniform) {
      if (i.dtype != DType::kF32) return "gives f32: cast after";
      if (src(i, 0) != DType::kI64) return "the seed is an i64";
      if (i.src[1] != kNoValue && src(i, 1) != DType::kI64) return "the index is an i64";
    }
    return "";
  }

  std::string widths(size_t v, const std::vector<Extent>& extent) {
    const Instr& i = p_.code[v];
    if (i.op == Op::kStore) {
      has_stored_ = true;
      if (extent[i.src[0]] > extent[v]) return "a row output cannot hold a value per element";
    } else if (i.op == Op::kLoad && has_stored_) {
      return "a load after a store: the store may have overwritten it";
    } else if ((i.op == Op::kCopy || i.op == Op::kIndex) &&
               (i.imm < 0 || i.imm > static_cast<int64_t>(Extent::kFull) ||
                (i.imm == static_cast<int64_t>(Extent::kRow) && p_.n_inner == 0))) {
      return cat("extent ", i.imm, " is not one of the program's");
    } else if (i.op == Op::kRandomUniform && extent[i.src[0]] != Extent::kUniform) {
      return "the seed is uniform";
    } else if (op_info(i.op).kind == Kind::kReduce && p_.n_inner == 0) {
      return "needs inner dims, and the program is elementwise";
    }
    return "";
  }

  const Program& p_;
  std::vector<bool> stored_;
  bool has_stored_ = false;
};

}  // namespace

Status verify(const Program& p) { return Verifier(p).run(); }

Status seal(Program& p) {
  TEGULA_TRY(verify(p));
  p.resident = share<const Schedule>(make_schedule(p, true));
  const bool has_rows = p.resident->long_bytes > 0;
  p.streamed = has_rows ? share<const Schedule>(make_schedule(p, false)) : p.resident;
  return {};
}

int64_t flops(const Program& p, std::span<const int64_t> shape) {
  TEGULA_CHECK(p.resident && static_cast<int>(shape.size()) == p.rank, "a sealed program's shape");
  int64_t rows = 1, row_len = 1;
  for (int d = 0; d < p.rank; ++d) (d < p.rank - p.n_inner ? rows : row_len) *= shape[d];
  const Schedule& s = *p.resident;
  if (rows == 0) return 0;
  return s.uniform_flops + rows * (s.row_flops + row_len * s.full_flops);
}

bool operator==(const Program& a, const Program& b) { return to_text(a) == to_text(b); }

}  // namespace tegula::tile
