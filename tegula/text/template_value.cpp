#include "tegula/text/template_value.h"

#include <charconv>
#include <cmath>

#include "tegula/base/algorithm.h"
#include "tegula/io/json.h"
#include "tegula/text/normal_form.h"
#include "tegula/text/unicode.h"

namespace tegula::jinja {

namespace {
using Kind = Value::Kind;

// repr(float): the shortest digits that give it back, with an exponent below 1e-4 and from 1e16 on.
std::string float_text(double x) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x < 0 ? "-inf" : "inf";
  char buffer[64];
  const double size = std::fabs(x);
  const bool has_exponent = size != 0 && (size < 1e-4 || size >= 1e16);
  const auto format = has_exponent ? std::chars_format::scientific : std::chars_format::fixed;
  std::string text(buffer, std::to_chars(buffer, buffer + sizeof buffer, x, format).ptr);
  if (!has_exponent && text.find('.') == text.npos) text += ".0";
  return text;
}

std::string hex(char32_t c, size_t digits) {
  std::string text;
  for (size_t i = digits; i-- > 0;) text += "0123456789abcdef"[c >> (4 * i) & 15];
  return text;
}

std::string quoted(const std::string& text) {
  const bool has_single = text.find('\'') != text.npos, has_double = text.find('"') != text.npos;
  const char32_t quote = has_single && !has_double ? '"' : '\'';
  std::u32string points = to_code_points(text);
  std::string out(1, static_cast<char>(quote));
  for (const char32_t c : points) {
    const Category of = category(c);
    const bool is_shown =
        c == ' ' ||
        (of != Category::kZs && of != Category::kZl && of != Category::kZp && of != Category::kCc &&
         of != Category::kCf && of != Category::kCs && of != Category::kCo && of != Category::kCn);
    if (c == quote || c == '\\')
      out += cat('\\', static_cast<char>(c));
    else if (c == '\n' || c == '\t' || c == '\r')
      out += c == '\n' ? "\\n" : c == '\t' ? "\\t" : "\\r";
    else if (is_shown || c >= 0x110000)
      out += to_utf8(std::u32string_view(&c, 1));
    else
      out += c < 0x100     ? cat("\\x", hex(c, 2))
             : c < 0x10000 ? cat("\\u", hex(c, 4))
                           : cat("\\U", hex(c, 8));
  }
  return out + static_cast<char>(quote);
}

std::string json_quoted(const std::string& text, bool ascii) {
  std::string out = "\"";
  for (const char32_t c : to_code_points(text)) {
    constexpr std::string_view kNames = "\"\\\n\r\t\b\f", kLetters = "\"\\nrtbf";
    if (const size_t at = c < 0x80 ? kNames.find(static_cast<char>(c)) : kNames.npos;
        at != kNames.npos)
      out += cat('\\', kLetters[at]);
    else if (c < 0x20 || (ascii && c >= 0x7f && c < 0x10000))
      out += cat("\\u", hex(c, 4));
    else if (ascii && c >= 0x10000 && c < 0x110000)
      out +=
          cat("\\u", hex(0xd800 + ((c - 0x10000) >> 10), 4), "\\u", hex(0xdc00 + (c & 0x3ff), 4));
    else
      out += to_utf8(std::u32string_view(&c, 1));
  }
  return out + '"';
}

Error no_work() { return invalid_argument("it does more than a template may"); }

Status append_repr(std::string& out, const Value& v, Work& work);

Status append_items(std::string& out, const Value& v, Work& work) {
  for (size_t i = 0; i < v.items->size(); ++i) {
    if (i > 0) out += v.is(Kind::kDict) && i % 2 == 1 ? ": " : ", ";
    TEGULA_TRY(append_repr(out, (*v.items)[i], work));
  }
  return {};
}

Status append_repr(std::string& out, const Value& v, Work& work) {
  if (!work.spend(1) || out.size() > work.most_bytes) return no_work();
  switch (v.kind) {
    case Kind::kNone:
      out += "None";
      return {};
    case Kind::kBool:
      out += v.integer ? "True" : "False";
      return {};
    case Kind::kInt:
      append(out, v.integer);
      return {};
    case Kind::kFloat:
      out += float_text(v.real);
      return {};
    case Kind::kText:
      if (!work.spend_text(v.str().size())) return no_work();
      out += v.is_safe ? cat("Markup(", quoted(v.str()), ")") : quoted(v.str());
      return {};
    case Kind::kUndefined:
      out += "Undefined";
      return {};
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict: {
      const char* brackets = v.is(Kind::kList) ? "[]" : v.is(Kind::kTuple) ? "()" : "{}";
      out += brackets[0];
      TEGULA_TRY(append_items(out, v, work));
      if (v.is(Kind::kTuple) && v.items->size() == 1) out += ',';
      out += brackets[1];
      return {};
    }
    case Kind::kView:
      if (v.str() == "range") break;
      out += v.str() + "([";
      TEGULA_TRY(append_items(out, v, work));
      out += "])";
      return {};
    default:
      break;
  }
  return unsupported(cat("the text of a ", v.type_name()));
}

Status append_json(std::string& out, const Value& v, const JsonStyle& style, int level, Work& work);

Status append_members(std::string& out, const Value& v, const JsonStyle& style, int level,
                      Work& work) {
  const bool is_dict = v.is(Kind::kDict);
  const size_t step = is_dict ? 2 : 1;
  std::vector<size_t> order;
  for (size_t i = 0; i < v.items->size(); i += step) order.push_back(i);
  const auto line = [&](int at) {
    if (style.indent == nullptr) return;
    out += '\n';
    for (int i = 0; i < at; ++i) out += *style.indent;
  };
  const auto& all = *v.items;
  if (is_dict && style.sorts) {
    for (const size_t i : order)
      if (!all[i].is(Kind::kText)) return unsupported("tojson sorts keys that are texts alone");
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return all[a].str() < all[b].str(); });
  }
  out += is_dict ? '{' : '[';
  for (size_t n = 0; n < order.size(); ++n) {
    if (n > 0) out += style.comma;
    line(level + 1);
    const Value& first = all[order[n]];
    if (is_dict) {
      std::string key;
      if (!first.is(Kind::kText)) {
        if (!first.is_number() && !first.is(Kind::kNone))
          return invalid_argument(cat("tojson: a key is a ", first.type_name()));
        TEGULA_TRY(append_json(key, first, style, 0, work));
      }
      out += json_quoted(first.is(Kind::kText) ? first.str() : key, style.ascii) + style.colon;
    }
    TEGULA_TRY(append_json(out, is_dict ? all[order[n] + 1] : first, style, level + 1, work));
  }
  if (!order.empty()) line(level);
  out += is_dict ? '}' : ']';
  return {};
}

Status append_json(std::string& out, const Value& v, const JsonStyle& style, int level,
                   Work& work) {
  if (!work.spend(1) || out.size() > work.most_bytes) return no_work();
  switch (v.kind) {
    case Kind::kNone:
      out += "null";
      return {};
    case Kind::kBool:
      out += v.integer ? "true" : "false";
      return {};
    case Kind::kInt:
      append(out, v.integer);
      return {};
    case Kind::kFloat:
      out += std::isnan(v.real)   ? "NaN"
             : std::isinf(v.real) ? (v.real < 0 ? "-Infinity" : "Infinity")
                                  : float_text(v.real);
      return {};
    case Kind::kText:
      if (!work.spend_text(v.str().size())) return no_work();
      out += json_quoted(v.str(), style.ascii);
      return {};
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
      return append_members(out, v, style, level, work);
    default:
      return invalid_argument(cat("tojson: JSON has nothing for a ", v.type_name()));
  }
}

}  // namespace

Value Value::of(Kind kind, std::string name) {
  Value v;
  v.kind = kind;
  v.text = std::make_shared<const std::string>(std::move(name));
  return v;
}

Value Value::list(std::vector<Value> items, Kind kind) {
  Value v;
  v.kind = kind;
  for (const Value& each : items) v.depth = std::max(v.depth, each.depth + 1);
  v.items = std::make_shared<std::vector<Value>>(std::move(items));
  return v;
}

Value Value::from(const Json& json) {
  if (const auto* x = json.as<bool>()) return *x;
  if (const auto* x = json.as<int64_t>()) return *x;
  if (const auto* x = json.as<double>()) return *x;
  if (const auto* x = json.as<std::string>()) return *x;
  std::vector<Value> items;
  if (const auto* array = json.as<Json::Array>()) {
    for (const Json& each : *array) items.push_back(from(each));
    return list(std::move(items));
  }
  const auto* object = json.as<Json::Object>();
  if (object == nullptr) return none();
  for (const auto& [key, value] : *object) {
    items.emplace_back(key);
    items.push_back(from(value));
  }
  return list(std::move(items), Kind::kDict);
}

bool Value::is_true() const {
  switch (kind) {
    case Kind::kUndefined:
    case Kind::kMissing:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return integer != 0;
    case Kind::kFloat:
      return real != 0;
    case Kind::kText:
      return !text->empty();
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kView:
      return !items->empty();
    default:
      return true;
  }
}

const Value* Value::find(const Value& key, Work& work) const {
  for (size_t i = 0; i < items->size() && work.spend(1); i += 2)
    if (equals((*items)[i], key, work)) return &(*items)[i + 1];
  return nullptr;
}

const char* Value::type_name() const {
  static constexpr const char* kNames[] = {"undefined value",
                                           "missing value",
                                           "NoneType",
                                           "bool",
                                           "int",
                                           "float",
                                           "str",
                                           "list",
                                           "tuple",
                                           "dict",
                                           "view",
                                           "generator",
                                           "namespace",
                                           "loop",
                                           "method",
                                           "function",
                                           "macro"};
  return kNames[static_cast<size_t>(kind)];
}

bool equals(const Value& a, const Value& b, Work& work) {
  if (!work.spend(1)) return false;
  if (a.is_integer() && b.is_integer()) return a.integer == b.integer;
  if (a.is_number() && b.is_number()) return a.number() == b.number();
  if (a.kind != b.kind) return false;
  if (a.is(Kind::kText))
    return a.str().size() == b.str().size() && work.spend_text(a.str().size()) &&
           a.str() == b.str();
  if (a.is(Kind::kUndefined) || a.is(Kind::kNone)) return true;
  if (a.items == nullptr || a.is(Kind::kMethod) || a.is(Kind::kOnce))
    return a.items == b.items && a.space == b.space && (a.text == b.text || *a.text == *b.text);
  if (a.items == b.items && !a.is(Kind::kView)) return true;
  if (a.items->size() != b.items->size()) return false;
  for (size_t i = 0; i < a.items->size(); ++i) {
    const Value& x = (*a.items)[i];
    if (!a.is(Kind::kDict)) {
      if (!equals(x, (*b.items)[i], work)) return false;
    } else if (i % 2 == 0) {
      const Value* other = b.find(x, work);
      if (other == nullptr || !equals((*a.items)[i + 1], *other, work)) return false;
    }
  }
  return true;
}

Result<int> compare(const Value& a, const Value& b, Work& work) {
  const auto order = [](const auto& x, const auto& y) { return x < y ? -1 : y < x ? 1 : 0; };
  if (a.is_integer() && b.is_integer()) return order(a.integer, b.integer);
  if (a.is_number() && b.is_number()) return order(a.number(), b.number());
  // The bytes of UTF-8 have the order of code points.
  if (a.is(Kind::kText) && b.is(Kind::kText)) return order(a.str(), b.str());
  if (a.kind != b.kind || !a.is_sequence())
    return invalid_argument(cat("a ", a.type_name(), " and a ", b.type_name(), " are in no order"));
  for (size_t i = 0; i < std::min(a.items->size(), b.items->size()); ++i) {
    if (!work.spend(1)) return no_work();
    if (!equals((*a.items)[i], (*b.items)[i], work))
      return compare((*a.items)[i], (*b.items)[i], work);
  }
  return order(a.items->size(), b.items->size());
}

Result<std::string> to_repr(const Value& value, Work& work) {
  std::string out;
  TEGULA_TRY(append_repr(out, value, work));
  return out;
}

Result<std::string> to_text(const Value& value, Work& work) {
  if (value.is(Kind::kUndefined)) return std::string();
  if (!value.is(Kind::kText)) return to_repr(value, work);
  if (!work.spend_text(value.str().size())) return no_work();
  return value.str();
}

Result<std::string> to_json_text(const Value& value, const JsonStyle& style, Work& work) {
  std::string out;
  TEGULA_TRY(append_json(out, value, style, 0, work));
  return out;
}

bool is_space(char32_t c) { return char_class(c) == CharClass::kSpace || (c >= 0x1c && c <= 0x1f); }

std::string_view strip(std::string_view text, bool left, bool right, const std::u32string* of) {
  const auto goes = [&](char32_t c) { return of ? of->find(c) != of->npos : is_space(c); };
  const auto size = [](char32_t c) { return to_utf8(std::u32string_view(&c, 1)).size(); };
  const auto first_of = [](std::string_view s) { return to_code_points(s.substr(0, 4))[0]; };
  while (left && !text.empty()) {
    const char32_t c = first_of(text);
    if (!goes(c)) break;
    text.remove_prefix(size(c));
  }
  while (right && !text.empty()) {
    size_t at = text.size() - 1;
    while (at > 0 && text.size() - at < 4 && (text[at] & 0xc0) == 0x80) --at;
    const char32_t c = to_code_points(text.substr(at)).back();
    if (!goes(c)) break;
    text.remove_suffix(size(c));
  }
  return text;
}

namespace {
// Upper case is what lower case comes from, where that is one letter and the only one.
char32_t upper_of(char32_t c) {
  static const std::vector<std::pair<char32_t, char32_t>> pairs = [] {
    std::vector<std::pair<char32_t, char32_t>> all;
    for (char32_t u = 0x80; u < 0x1f000; ++u) {
      if (category(u) != Category::kLu) continue;
      const std::u32string low = lower_case(std::u32string_view(&u, 1));
      if (low.size() == 1 && low[0] != u && low[0] >= 0x80) all.emplace_back(low[0], u);
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    return all;
  }();
  const auto at = std::lower_bound(pairs.begin(), pairs.end(), c,
                                   [](const auto& p, char32_t x) { return p.first < x; });
  return at != pairs.end() && at->first == c ? at->second : 0;
}

Result<char32_t> upper_case(char32_t c) {
  if (c < 0x80) return c >= 'a' && c <= 'z' ? c - 32 : c;
  if (category(c) != Category::kLl) {
    if (category(c) != Category::kLt) return c;
  } else if (const char32_t u = upper_of(c); u != 0) {
    return u;
  }
  return unsupported(cat("upper case of '", to_utf8(std::u32string_view(&c, 1)), "'"));
}
}  // namespace

Result<std::string> upper(std::string_view text) {
  std::u32string points = to_code_points(text);
  for (char32_t& c : points) c = TEGULA_TRY(upper_case(c));
  return to_utf8(points);
}

Result<std::string> lower(std::string_view text) {
  std::u32string points = to_code_points(text);
  if (points.find(0x3a3) != points.npos)
    return unsupported("lower case of 'Σ', which depends on its place");
  for (char32_t& c : points)
    if (c >= 'A' && c <= 'Z') c += 32;
  return to_utf8(lower_case(points));
}

Result<std::string> capitalize(std::string_view text, bool each_word) {
  std::string out;
  bool begins = true;
  for (const char32_t c : to_code_points(text)) {
    const std::string one = to_utf8(std::u32string_view(&c, 1));
    const bool is_letter = char_class(c) == CharClass::kLetter;
    out += TEGULA_TRY(begins && is_letter ? upper(one) : lower(one));
    begins = each_word && !is_letter;
  }
  return out;
}

}  // namespace tegula::jinja
