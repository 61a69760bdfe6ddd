#include "tests/kernels/cuda/emulator/nvrtc/rewrite.h"

#include <cctype>

namespace tegula::emulated {

size_t end_of_literal(std::string_view text, size_t at) {
  const char quote = text[at++];
  while (at < text.size() && text[at] != quote) at += text[at] == '\\' ? 2 : 1;
  return at < text.size() ? at + 1 : text.size();
}

size_t end_of_name(std::string_view text, size_t at) {
  while (at < text.size() &&
         (begins_name(text[at]) || std::isdigit(static_cast<unsigned char>(text[at])) != 0))
    ++at;
  return at;
}

size_t skip_space(std::string_view text, size_t at) {
  while (at < text.size() && std::isspace(static_cast<unsigned char>(text[at])) != 0) ++at;
  return at;
}

namespace {

// Past the bracket that closes the one at `at`.
size_t end_of_brackets(std::string_view text, size_t at) {
  int depth = 0;
  while (at < text.size()) {
    const char c = text[at];
    if (c == '"' || c == '\'') {
      at = end_of_literal(text, at);
      continue;
    }
    depth += static_cast<int>(c == '(' || c == '[' || c == '{');
    depth -= static_cast<int>(c == ')' || c == ']' || c == '}');
    ++at;
    if (depth == 0) return at;
  }
  return at;
}

// Parts between separators that stand in no brackets.
std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts(1);
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    size_t end = at + 1;
    if (c == '"' || c == '\'') end = end_of_literal(text, at);
    if (c == '(' || c == '[' || c == '{') end = end_of_brackets(text, at);
    if (c == separator)
      parts.emplace_back();
    else
      parts.back() += text.substr(at, end - at);
    at = end;
  }
  return parts;
}

// The literals of a part, joined, with their escapes resolved.
std::string joined_literals(std::string_view part) {
  std::string out;
  for (size_t at = 0; at < part.size();) {
    if (part[at] != '"') {
      ++at;
      continue;
    }
    const size_t end = end_of_literal(part, at);
    for (size_t i = at + 1; i + 1 < end; ++i) {
      if (part[i] != '\\')
        out += part[i];
      else if (++i; part[i] == 'n')
        out += '\n';
      else
        out += part[i] == 't' ? ' ' : part[i];
    }
    at = end;
  }
  return out;
}

// "constraint"(expression): the expression, in brackets.
std::string expression_of(std::string_view operand) {
  size_t at = operand.find('"');
  if (at == operand.npos) return "";
  at = skip_space(operand, end_of_literal(operand, at));
  return std::string(operand.substr(at));
}

class Rewriter {
 public:
  Rewriter(std::string_view text, const std::function<bool(const std::string&)>& is_known)
      : text_(text), is_known_(is_known) {}

  Rewritten run() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '"' || c == '\'')
        copy_to(end_of_literal(text_, at_));
      else if (begins_name(c))
        take_name();
      else if (std::isdigit(static_cast<unsigned char>(c)) != 0)
        copy_number();
      else
        copy_to(at_ + 1);
    }
    return std::move(out_);
  }

 private:
  void copy_to(size_t end) { out_.text += text_.substr(at_, end - at_), at_ = end; }

  // Its digits may be parted by ', which begins no literal.
  void copy_number() {
    size_t end = at_;
    while (end < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[end])) != 0 ||
                                  text_[end] == '\'' || text_[end] == '.'))
      ++end;
    copy_to(end);
  }

  // The name at `at`, if one begins there.
  std::string_view name_at(size_t at) const {
    return at < text_.size() && begins_name(text_[at])
               ? text_.substr(at, end_of_name(text_, at) - at)
               : std::string_view();
  }

  void take_name() {
    const std::string_view name = name_at(at_);
    const size_t next = skip_space(text_, at_ + name.size());
    if (name == "asm" || name == "__asm__") {
      take_asm();
    } else if (name == "extern" && name_at(next) == "tegula_shared") {
      take_dynamic_shared(next);
    } else if (name == "tegula_shared") {
      const bool is_static = out_.text.ends_with("static ");
      out_.text += is_static ? "thread_local" : "static thread_local";
      at_ += name.size();
    } else if (name == "__attribute__" && take_mark(next)) {
    } else {
      if (is_kernel_ && next < text_.size() && text_[next] == '(' && name != "__attribute__") {
        out_.kernels.push_back({std::string(name), bounds_});
        is_kernel_ = false;
      }
      copy_to(at_ + name.size());
    }
  }

  // Whether the attribute, whose brackets are at `at`, is one of language.h's marks.
  bool take_mark(size_t at) {
    const size_t end = end_of_brackets(text_, at);
    const std::string_view inside = text_.substr(at, end - at);
    if (inside.starts_with("((tegula_kernel")) {
      const size_t before = out_.text.find_last_of(";}");
      const std::string_view declaration =
          std::string_view(out_.text).substr(before == std::string::npos ? 0 : before);
      is_kernel_ = declaration.find("extern \"C\"") != declaration.npos;
      bounds_.clear();
    } else if (inside.starts_with("((tegula_bounds")) {
      const size_t open = inside.find('(', 2);
      bounds_ = inside.substr(open + 1, inside.size() - open - 4);
    } else {
      return false;
    }
    at_ = end;
    return true;
  }

  // extern __shared__ [aligned] type name[];
  void take_dynamic_shared(size_t mark) {
    const size_t end = text_.find(';', at_);
    size_t at = mark + name_at(mark).size();
    std::string declaration;
    while (at < end) {
      if (const auto name = name_at(at); name == "__attribute__") {
        at = end_of_brackets(text_, skip_space(text_, at + name.size()));
      } else if (!name.empty()) {
        declaration += name, at += name.size();
      } else {
        declaration += text_[at++];
      }
    }
    const size_t bracket = declaration.find('[');
    size_t last = bracket == std::string::npos ? declaration.size() : bracket;
    while (last > 0 && std::isspace(static_cast<unsigned char>(declaration[last - 1])) != 0) --last;
    size_t first = last;
    while (first > 0 && end_of_name(declaration, first - 1) == last) --first;
    const std::string type = declaration.substr(0, first),
                      name = declaration.substr(first, last - first);
    out_.text += type + "* const " + name + " = ::tegula::emulated::dynamic_shared<" + type + ">()";
    at_ = end;
  }

  void take_asm() {
    size_t open = skip_space(text_, at_ + name_at(at_).size());
    while (!name_at(open).empty()) open = skip_space(text_, open + name_at(open).size());
    if (open >= text_.size() || text_[open] != '(') return copy_to(open);
    const size_t end = end_of_brackets(text_, open);
    std::string inside;
    // Without the marks of lines, which the preprocessor leaves between literals too.
    std::string_view rest = text_.substr(open + 1, end - open - 2);
    while (!rest.empty()) {
      const size_t line_end = rest.find('\n');
      const std::string_view line = rest.substr(0, line_end);
      if (!line.starts_with('#')) inside += line;
      if (line_end == rest.npos) break;
      inside += ' ', rest.remove_prefix(line_end + 1);
    }
    const std::vector<std::string> parts = split(inside, ':');
    std::vector<std::string> operands;
    for (size_t part = 1; part < parts.size() && part <= 2; ++part)
      for (const std::string& operand : split(parts[part], ','))
        if (const std::string e = expression_of(operand); !e.empty()) operands.push_back(e);
    out_.text +=
        "do {" + translate_ptx(joined_literals(parts[0]), operands, is_known_) + "} while (false)";
    at_ = end;
  }

  std::string_view text_;
  const std::function<bool(const std::string&)>& is_known_;
  size_t at_ = 0;
  Rewritten out_;
  bool is_kernel_ = false;  // a kernel's name is to come
  std::string bounds_;
};

}  // namespace

Rewritten rewrite(std::string_view text, const std::function<bool(const std::string&)>& is_known) {
  return Rewriter(text, is_known).run();
}

}  // namespace tegula::emulated
