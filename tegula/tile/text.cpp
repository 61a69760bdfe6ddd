// Text of a program and back; program.h shows the form.
#include "tegula/base/text.h"

#include <charconv>
#include <cstdlib>

#include "tegula/tile/program.h"

namespace tegula::tile {

namespace {

std::string number(double v) { return printed("%.17g", v); }

void operand(std::string& out, const char* prefix, size_t k, const Operand& o) {
  append(out, cat(prefix, k, " ", dtype_name(o.dtype)));
  if (o.extent == Extent::kRow) out += " row";
  if (o.extent == Extent::kUniform) out += " uniform";
  if (o.extent == Extent::kColumn) out += " column";
  out += '\n';
}

// Words of a line, split at blanks.
std::vector<std::string_view> words(std::string_view line) {
  std::vector<std::string_view> out;
  size_t at = 0;
  while (at < line.size()) {
    const size_t begin = line.find_first_not_of(" \t\r,", at);
    if (begin == line.npos) break;
    at = std::min(line.find_first_of(" \t\r,", begin), line.size());
    out.push_back(line.substr(begin, at - begin));
  }
  return out;
}

// "prefix123" → 123.
bool numbered(std::string_view word, std::string_view prefix, int64_t& value) {
  if (!word.starts_with(prefix)) return false;
  word.remove_prefix(prefix.size());
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  return error == std::errc() && end == word.data() + word.size();
}

const Op* find_op(std::string_view name, Op& op) {
  for (int k = 0; k < kNumOps; ++k)
    if (kOps[k].name == name) return op = static_cast<Op>(k), &op;
  return nullptr;
}

class Parser {
 public:
  Result<Program> run(std::string_view text) {
    int line = 0;
    while (!text.empty()) {
      const auto w = words(take_until('\n', text));
      ++line;
      if (w.empty() || w[0].starts_with('#')) continue;
      const std::string message = one(w);
      if (!message.empty())
        return invalid_argument(cat("tile program text, line ", line, ": ", message));
    }
    TEGULA_TRY(seal(p_));
    return std::move(p_);
  }

 private:
  using Words = std::vector<std::string_view>;

  std::string one(const Words& w) {
    int64_t k = 0;
    if (w[0] == "program") {
      int64_t rank = -1, inner = -1;
      if (w.size() != 3 || !numbered(w[1], "rank=", rank) || !numbered(w[2], "inner=", inner) ||
          rank < 0 || rank > 255 || inner < 0 || inner > 255)
        return "expected `program rank=R inner=I`";
      p_.rank = static_cast<int>(rank), p_.n_inner = static_cast<int>(inner);
      return "";
    }
    if (numbered(w[0], "in", k)) return operand(w, k, p_.inputs);
    if (numbered(w[0], "out", k)) return operand(w, k, p_.outputs);
    if (w[0] == "store") return store(w);
    if (numbered(w[0], "%", k) && w.size() >= 4 && w[1] == "=") return value(w, k);
    return cat("expected an operand, `%N = op dtype …` or `store outN %V`, got `", w[0], "`");
  }

  static std::string operand(const Words& w, int64_t k, std::vector<Operand>& list) {
    if (k != static_cast<int64_t>(list.size())) return cat("expected number ", list.size());
    if (w.size() < 2 || w.size() > 3) return "expected a dtype and perhaps row, uniform or column";
    const auto dtype = parse_dtype(w[1]);
    if (!dtype) return cat("unknown dtype ", w[1]);
    Operand o{*dtype, Extent::kFull};
    if (w.size() == 3) {
      if (w[2] != "row" && w[2] != "uniform" && w[2] != "column")
        return cat("unknown extent ", w[2]);
      o.extent = w[2] == "row"       ? Extent::kRow
                 : w[2] == "uniform" ? Extent::kUniform
                                     : Extent::kColumn;
    }
    list.push_back(o);
    return "";
  }

  std::string store(const Words& w) {
    int64_t out = 0, src = 0;
    if (w.size() != 3 || !numbered(w[1], "out", out) || !numbered(w[2], "%", src) || src < 0 ||
        src >= kNoValue || out < 0 || static_cast<size_t>(out) >= p_.outputs.size())
      return "expected `store outN %V` with a declared output";
    Instr i{Op::kStore, p_.outputs[static_cast<size_t>(out)].dtype};
    i.src[0] = static_cast<uint16_t>(src), i.imm = out;
    p_.code.push_back(i);
    return "";
  }

  std::string value(const Words& w, int64_t k) {
    if (k != static_cast<int64_t>(p_.code.size()))
      return cat("value %", k, " where %", p_.code.size(), " is next (stores count)");
    Instr i;
    if (!find_op(w[2], i.op) || i.op == Op::kStore) return cat("unknown op ", w[2]);
    const auto dtype = parse_dtype(w[3]);
    if (!dtype) return cat("unknown dtype ", w[3]);
    i.dtype = *dtype;
    size_t at = 4;
    std::string m = immediate(w, at, i);
    if (!m.empty()) return m;
    for (int s = 0; at < w.size(); ++at, ++s) {
      int64_t id = 0;
      if (s == 3 || !numbered(w[at], "%", id) || id < 0 || id >= kNoValue)
        return cat("expected at most three sources %V, got `", w[at], "`");
      i.src[s] = static_cast<uint16_t>(id);
    }
    p_.code.push_back(i);
    return "";
  }

  static std::string immediate(const Words& w, size_t& at, Instr& i) {
    const std::string_view word = at < w.size() ? w[at] : std::string_view();
    bool ok = true;
    switch (i.op) {
      case Op::kLoad:
        ok = numbered(word, "in", i.imm);
        break;
      case Op::kIota:
        ok = numbered(word, "dim=", i.imm);
        break;
      case Op::kRandomUniform:
        ok = numbered(word, "stream=", i.imm);
        break;
      case Op::kCopy:
      case Op::kIndex:
        if (word != "row" && word != "full") return "";
        i.imm = static_cast<int64_t>(word == "row" ? Extent::kRow : Extent::kFull);
        break;
      case Op::kConstant: {
        if (class_of(i.dtype) == Class::kI64) {
          ok = numbered(word, "", i.imm);
          break;
        }
        const std::string copy(word);
        char* end = nullptr;
        i.value = std::strtod(copy.c_str(), &end);
        ok = !copy.empty() && *end == 0;
        break;
      }
      default:
        return "";
    }
    if (!ok) return cat(op_info(i.op).name, ": bad immediate `", word, "`");
    ++at;
    return "";
  }

  Program p_;
};

}  // namespace

std::string to_text(const Program& p) {
  std::string out = cat("program rank=", p.rank, " inner=", p.n_inner, "\n");
  for (size_t k = 0; k < p.inputs.size(); ++k) operand(out, "in", k, p.inputs[k]);
  for (size_t k = 0; k < p.outputs.size(); ++k) operand(out, "out", k, p.outputs[k]);
  for (size_t v = 0; v < p.code.size(); ++v) {
    const Instr& i = p.code[v];
    if (i.op == Op::kStore) {
      append(out, cat("store out", i.imm));
    } else {
      append(out, cat("%", v, " = ", op_info(i.op).name, " ", dtype_name(i.dtype)));
      if (i.op == Op::kLoad) append(out, cat(" in", i.imm));
      if (i.op == Op::kIota) append(out, cat(" dim=", i.imm));
      if (i.op == Op::kRandomUniform) append(out, cat(" stream=", i.imm));
      if ((i.op == Op::kCopy || i.op == Op::kIndex) && i.imm)
        append(out, i.imm == static_cast<int64_t>(Extent::kRow) ? " row" : " full");
      if (i.op == Op::kConstant)
        append(out, class_of(i.dtype) == Class::kI64 ? cat(" ", i.imm) : cat(" ", number(i.value)));
    }
    for (uint16_t s : i.src)
      if (s != kNoValue) append(out, cat(" %", s));
    out += '\n';
  }
  return out;
}

Result<Program> parse(std::string_view text) { return Parser().run(text); }

}  // namespace tegula::tile
