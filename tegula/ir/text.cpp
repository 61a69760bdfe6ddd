#include "tegula/ir/text.h"

#include <bit>
#include <charconv>
#include <cmath>

#include "tegula/base/text.h"

namespace tegula {

namespace {

std::string quoted(std::string_view s) {
  std::string out = "\"";
  for (const char c : s) {
    if (c == '"' || c == '\\') {
      out += '\\', out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      constexpr char kHex[] = "0123456789abcdef";
      out += "\\x", out += kHex[(c >> 4) & 15], out += kHex[c & 15];
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string float_text(double v) {
  if (std::isnan(v)) {
    return printed("nan(%016llx)", static_cast<unsigned long long>(std::bit_cast<uint64_t>(v)));
  }
  if (std::isinf(v)) return v > 0 ? "inf" : "-inf";
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, v).ptr;
  std::string s(buffer, end);
  if (s.find_first_of(".e") == std::string::npos) s += ".0";
  return s;
}

class Printer {
 public:
  explicit Printer(const Module& m) : m_(m) {
    for (size_t i = 0; i < m.symbols.size(); ++i) {
      const std::string& name = m.symbols[i].name;
      bool plain = is_identifier(name);
      for (const std::string& earlier : labels_) plain &= earlier != name;
      labels_.push_back(plain ? name : cat("$", i));
    }
  }

  std::string head() const {
    std::string out = m_.mesh.axes.empty() ? "" : cat("mesh ", to_text(m_.mesh), "\n");
    for (size_t i = 0; i < m_.symbols.size(); ++i) {
      const Symbol& s = m_.symbols[i];
      out += cat("symbol ", labels_[i], labels_[i] == s.name ? "" : " " + quoted(s.name),
                 " <= ", s.bound, "\n");
    }
    return out;
  }

  std::string function(const Function& f, size_t id) const {
    std::vector<size_t> number(f.values.size(), 0);
    size_t next = 0;
    std::string out = cat("func ", id, " ", quoted(f.name), " {\n");
    for (const Param& p : f.params) {
      constexpr std::string_view kRoles[] = {"input", "weight", "state"};
      number[p.value] = next++;
      out += cat("  param %", number[p.value], " ", kRoles[static_cast<size_t>(p.role)], " ",
                 quoted(p.name), " ", type(f, p.value));
      if (p.donated_to >= 0) out += cat(" donated ", p.donated_to);
      out += '\n';
    }
    for (const Node& n : f.nodes) {
      out += "  ";
      for (uint32_t i = 0; i < n.n_outputs; ++i) {
        number[n.output(i)] = next++;
        out += cat(i ? ", %" : "%", number[n.output(i)]);
      }
      out += cat(n.n_outputs ? " = " : "", n.op->name, "(");
      for (size_t k = 0; k < n.inputs.size(); ++k) out += cat(k ? ", %" : "%", number[n.inputs[k]]);
      out += ")";
      if (n.attrs.size() > 0) {
        const char* separator = " {";
        for (const auto& [name, value] : n.attrs) {
          out += cat(separator, name, " = ", attr(value));
          separator = ", ";
        }
        out += "}";
      }
      if (!n.regions.empty()) out += cat(" regions ", n.regions);
      for (uint32_t i = 0; i < n.n_outputs; ++i) out += cat(i ? ", " : " : ", type(f, n.output(i)));
      if (n.phase != Phase::kForward) out += n.phase == Phase::kBackward ? " backward" : " update";
      if (n.origin.scope != 0) out += cat(" in ", quoted(m_.scopes[n.origin.scope]));
      out += '\n';
    }
    for (const Output& r : f.results)
      out += cat("  result ", quoted(r.name), " %", number[r.value], "\n");
    return out + "}\n";
  }

 private:
  std::string dim(const Dim& d) const {
    if (d.is_const()) return std::to_string(d.offset);
    std::string out = d.scale == 1 ? "" : cat(d.scale, "*");
    out += labels_[static_cast<size_t>(d.symbol)];
    if (d.offset != 0) out += cat(d.offset > 0 ? "+" : "", d.offset);
    return out;
  }
  template <class Dims>
  std::string dims(const Dims& all) const {
    return joined(all, ",", [&](const Dim& d) { return dim(d); });
  }
  std::string type(const Function& f, ValueId v) const {
    const Type& t = f.type(v);
    std::string out = cat(t.dtype, "[", dims(t.shape), "]");
    if (const Sharding* s = f.sharding(v)) {
      const std::string text = to_text(m_.mesh, *s);
      out += cat(" ", text.empty() ? "[]" : text);
    }
    return out;
  }

  std::string attr(const AttrValue& value) const {
    return value.visit([&](const auto& v) -> std::string {
      using T = std::remove_cvref_t<decltype(v)>;
      if constexpr (std::is_same_v<T, double>) return float_text(v);
      if constexpr (std::is_same_v<T, std::string>) return quoted(v);
      if constexpr (std::is_same_v<T, std::vector<Dim>>) return cat("(", dims(v), ")");
      if constexpr (!std::is_same_v<T, std::vector<Dim>>) return cat(v);
    });
  }

  const Module& m_;
  std::vector<std::string> labels_;
};

}  // namespace

std::string to_text(const Module& m) {
  const Printer p(m);
  std::string out = p.head();
  for (size_t i = 0; i < m.functions.size(); ++i)
    out += cat(out.empty() ? "" : "\n", p.function(m.functions[i], i));
  return out;
}

std::string to_text(const Module& m, const Function& f) {
  size_t id = 0;
  while (id < m.functions.size() && m.functions[id].name != f.name) ++id;
  return Printer(m).function(f, id);
}

}  // namespace tegula
