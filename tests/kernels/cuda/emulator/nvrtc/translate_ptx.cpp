#include <algorithm>
#include <cctype>
#include <charconv>

#include "tests/kernels/cuda/emulator/nvrtc/rewrite.h"

namespace tegula::emulated {

namespace {

constexpr std::string_view kFunctions = "::tegula::emulated::ptx::";

std::string without_comments(std::string_view ptx) {
  std::string out;
  for (size_t at = 0; at < ptx.size();) {
    if (ptx.substr(at, 2) == "//")
      at = std::min(ptx.find('\n', at), ptx.size());
    else if (ptx.substr(at, 2) == "/*")
      at = std::min(ptx.find("*/", at), ptx.size() - 2) + 2;
    else
      out += ptx[at++];
  }
  return out;
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out + '"';
}

std::string type_of(std::string_view ptx) {
  if (ptx == ".pred") return "bool";
  if (ptx == ".f32") return "float";
  if (ptx == ".f64") return "double";
  if (ptx.ends_with("64")) return "unsigned long long";
  if (ptx.ends_with("16")) return "unsigned short";
  if (ptx.ends_with("8")) return "unsigned char";
  return "unsigned";
}

class Translator {
 public:
  Translator(const std::vector<std::string>& operands,
             const std::function<bool(const std::string&)>& is_known)
      : operands_(operands), is_known_(is_known) {}

  std::string run(std::string_view ptx) {
    for (size_t at = skip_space(ptx, 0); at < ptx.size(); at = skip_space(ptx, at)) {
      if (ptx[at] == '{' || ptx[at] == '}') {
        out_ += ptx[at++];
        continue;
      }
      const size_t end = std::min(ptx.find(';', at), ptx.size());
      statement(ptx.substr(at, end - at));
      at = std::min(end + 1, ptx.size());
    }
    return std::move(out_);
  }

 private:
  void statement(std::string_view s) {
    while (!s.empty() && std::isspace(static_cast<unsigned char>(s.back())) != 0)
      s.remove_suffix(1);
    if (s.empty()) return;
    if (s.starts_with(".reg")) return declare(s.substr(4));
    if (s.starts_with("@")) {
      const bool is_not = s.substr(1).starts_with("!");
      const size_t begin = is_not ? 2 : 1, end = end_of_name(s, begin);
      out_ += std::string("if (") + (is_not ? "!" : "") +
              of_register(s.substr(begin, end - begin)) + ") ";
      s.remove_prefix(skip_space(s, end));
    }
    size_t space = 0;
    while (space < s.size() && std::isspace(static_cast<unsigned char>(s[space])) == 0) ++space;
    std::string function;
    for (const char c : s.substr(0, space)) {
      if (c == ':' && function.ends_with('_')) continue;
      function += c == '.' || c == ':' ? '_' : c;
    }
    if (!is_known_(function)) {
      out_ += "::tegula::emulated::fail(" +
              quoted("the emulator does not know the instruction " + std::string(s) +
                     ": tests/kernels/cuda/emulator/device/ptx.h") +
              ");";
      return;
    }
    out_ += std::string(kFunctions) + function + "(" + arguments(s.substr(space)) + ");";
  }

  void declare(std::string_view s) {
    size_t at = skip_space(s, 0), end = at;
    while (end < s.size() && std::isspace(static_cast<unsigned char>(s[end])) == 0) ++end;
    const std::string type = type_of(s.substr(at, end - at));
    for (at = end; at < s.size();) {
      if (!begins_name(s[at])) {
        ++at;
        continue;
      }
      end = end_of_name(s, at);
      registers_.emplace_back(s.substr(at, end - at));
      out_ += type + " " + of_register(registers_.back()) + "{};";
      at = end;
    }
  }

  static std::string of_register(std::string_view name) {
    return "ptx_register_" + std::string(name);
  }

  // Operands in their order: brackets and braces only group them, `_` takes nothing.
  std::string arguments(std::string_view s) const {
    std::string out;
    for (size_t at = 0; at < s.size();) {
      const char c = s[at];
      size_t end = at + 1;
      if (c == '%' && s.substr(at, 2) == "%%") {
        end = end_of_name(s, at + 2);
        while (end < s.size() && s[end] == '.') end = end_of_name(s, end + 1);
        std::string name(s.substr(at + 2, end - at - 2));
        std::replace(name.begin(), name.end(), '.', '_');
        out += std::string(kFunctions) + name + "()";
      } else if (c == '%') {
        size_t index = 0;
        const auto [last, error] = std::from_chars(s.data() + at + 1, s.data() + s.size(), index);
        end = static_cast<size_t>(last - s.data());
        out += error == std::errc() && index < operands_.size() ? operands_[index] : "no_operand";
      } else if (begins_name(c)) {
        end = end_of_name(s, at);
        const std::string_view name = s.substr(at, end - at);
        const bool is_register =
            std::find(registers_.begin(), registers_.end(), name) != registers_.end();
        if (name == "_")
          end = s.substr(end).starts_with('|') ? end + 1
                                               : std::min(s.find(',', at), s.size() - 1) + 1;
        else
          out += is_register ? of_register(name) : std::string(name);
      } else if (std::isdigit(static_cast<unsigned char>(c)) != 0) {
        end = end_of_name(s, at);
        out += s.substr(at, end - at);
      } else if (c != '[' && c != ']' && c != '{' && c != '}') {
        out += c;
      }
      at = end;
    }
    return out;
  }

  const std::vector<std::string>& operands_;
  const std::function<bool(const std::string&)>& is_known_;
  std::vector<std::string> registers_;
  std::string out_;
};

}  // namespace

std::string translate_ptx(std::string_view ptx, const std::vector<std::string>& operands,
                          const std::function<bool(const std::string&)>& is_known) {
  return Translator(operands, is_known).run(without_comments(ptx));
}

}  // namespace tegula::emulated
