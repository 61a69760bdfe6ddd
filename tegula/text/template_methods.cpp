// Methods of texts, lists and dicts, each a row of a table.
#include <span>

#include "tegula/base/range.h"
#include "tegula/text/normal_form.h"
#include "tegula/text/template_evaluator.h"
#include "tegula/text/template_text.h"
#include "tegula/text/unicode.h"

namespace tegula::jinja {

using Kind = Value::Kind;

std::vector<std::string_view> split_lines(std::string_view text, bool keeps) {
  std::vector<std::string_view> lines;
  const auto end_at = [&](size_t at) -> size_t {  // bytes of the line's end that stands there
    const auto c = static_cast<unsigned char>(text[at]);
    if (c == '\r') return text.substr(at).starts_with("\r\n") ? 2 : 1;
    if ((c >= '\n' && c <= '\f') || (c >= 0x1c && c <= 0x1e)) return 1;
    if (text.substr(at).starts_with("\xc2\x85")) return 2;
    const bool is_separator =
        text.substr(at).starts_with("\xe2\x80\xa8") || text.substr(at).starts_with("\xe2\x80\xa9");
    return is_separator ? 3 : 0;
  };
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t n = end_at(at);
    if (n > 0) lines.push_back(text.substr(begin, at - begin + (keeps ? n : 0))), begin = at + n;
    at += std::max<size_t>(n, 1);
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

Result<std::string> replaced(std::string_view text, std::string_view from, std::string_view to,
                             int64_t most, const Work& work) {
  std::string out;
  while (most != 0 && out.size() <= work.most_bytes) {
    size_t at = text.find(from);
    if (from.empty()) at = 0;
    if (at == text.npos) break;
    out += text.substr(0, at);
    out += to;
    text.remove_prefix(at + from.size());
    --most;
    if (!from.empty()) continue;
    // Between the characters, and at both ends.
    if (text.empty()) return out;
    size_t n = 1;
    while (n < text.size() && (text[n] & 0xc0) == 0x80) ++n;
    out += text.substr(0, n);
    text.remove_prefix(n);
  }
  if (out.size() > work.most_bytes) return invalid_argument("it does more than a template may");
  return out += text;
}

bool is_cased(std::string_view text) {
  const std::u32string all = to_code_points(text);
  return any_of(
      all, [](char32_t c) { return category(c) == Category::kLu || category(c) == Category::kLl; });
}

namespace {
using Args = std::vector<Value>;

Result<std::string> text_of(const Value& v, std::string_view what) {
  if (v.is(Kind::kText)) return v.str();
  return invalid_argument(cat(what, " must be a text, not a ", v.type_name()));
}
Result<int64_t> count_of(const Value& v) {
  if (v.is(Kind::kMissing)) return int64_t{-1};
  if (v.is_integer()) return v.integer;
  return invalid_argument(cat("a count must be an integer, not a ", v.type_name()));
}
bool is_none(const Value& v) { return v.is(Kind::kMissing) || v.is(Kind::kNone); }

Result<Value> texts(Evaluator& e, const std::vector<std::string_view>& parts) {
  Args all;
  for (const std::string_view part : parts) all.push_back(TEGULA_TRY(e.text(std::string(part))));
  return Value::list(std::move(all));
}

// From the left, or mirrored from the right, into most + 1 parts at most.
template <bool from_right>
Result<Value> split(Evaluator& e, const Value& self, Args& a) {
  std::string_view rest = self.str();
  const int64_t most = TEGULA_TRY(count_of(a[1]));
  std::vector<std::string_view> parts;
  if (is_none(a[0])) {
    rest = strip(rest, !from_right, from_right);
    while (!rest.empty() && (most < 0 || static_cast<int64_t>(parts.size()) < most)) {
      // White space is found as what strip() takes away.
      size_t at = from_right ? rest.size() : 0;
      const auto ends = [&] {
        const auto part = from_right ? rest.substr(0, at) : rest.substr(at);
        return part.empty() || strip(part, !from_right, from_right).size() < part.size();
      };
      while (!ends()) at += from_right ? -1 : 1;
      parts.push_back(from_right ? rest.substr(at) : rest.substr(0, at));
      rest = strip(from_right ? rest.substr(0, at) : rest.substr(at), !from_right, from_right);
    }
    if (!rest.empty()) parts.push_back(rest);
  } else {
    const std::string by = TEGULA_TRY(text_of(a[0], "split's separator"));
    if (by.empty()) return invalid_argument("split's separator is empty");
    while (most < 0 || static_cast<int64_t>(parts.size()) < most) {
      const size_t at = from_right ? rest.rfind(by) : rest.find(by);
      if (at == rest.npos) break;
      parts.push_back(from_right ? rest.substr(at + by.size()) : rest.substr(0, at));
      rest = from_right ? rest.substr(0, at) : rest.substr(at + by.size());
    }
    parts.push_back(rest);
  }
  if (from_right) std::reverse(parts.begin(), parts.end());
  return texts(e, parts);
}

template <bool left, bool right>
Result<Value> stripped(Evaluator& e, const Value& self, Args& a) {
  if (is_none(a[0])) return e.text(std::string(strip(self.str(), left, right)));
  const std::u32string of = to_code_points(TEGULA_TRY(text_of(a[0], "what strip takes")));
  return e.text(std::string(strip(self.str(), left, right, &of)));
}

template <bool at_end>
Result<Value> has_affix(Evaluator&, const Value& self, Args& a) {
  const Args one(1, a[0]);
  if (a[0].is(Kind::kList)) return invalid_argument("startswith and endswith take no list");
  for (const Value& each : a[0].is(Kind::kTuple) ? *a[0].items : one) {
    const std::string affix = TEGULA_TRY(text_of(each, "a beginning or end"));
    if (at_end ? self.str().ends_with(affix) : self.str().starts_with(affix)) return Value(true);
  }
  return Value(false);
}

template <bool at_end>
Result<Value> without_affix(Evaluator& e, const Value& self, Args& a) {
  std::string_view text = self.str();
  const std::string affix = TEGULA_TRY(text_of(a[0], "a prefix or suffix"));
  if (at_end && text.ends_with(affix)) text.remove_suffix(affix.size());
  if (!at_end && text.starts_with(affix)) text.remove_prefix(affix.size());
  return e.text(std::string(text));
}

// The place in code points; -1: nowhere.
template <bool last, bool must>
Result<Value> find(Evaluator&, const Value& self, Args& a) {
  const std::string what = TEGULA_TRY(text_of(a[0], "what is looked for"));
  const size_t at = last ? self.str().rfind(what) : self.str().find(what);
  if (at == std::string::npos) {
    if (must) return invalid_argument("the text looked for is not there");
    return Value(int64_t{-1});
  }
  return Value(static_cast<int64_t>(to_code_points(self.str().substr(0, at)).size()));
}

Result<Value> count(Evaluator&, const Value& self, Args& a) {
  const std::string what = TEGULA_TRY(text_of(a[0], "what is counted"));
  int64_t n = 0;
  if (what.empty()) return Value(static_cast<int64_t>(to_code_points(self.str()).size()) + 1);
  for (size_t at = 0; (at = self.str().find(what, at)) != std::string::npos; at += what.size()) ++n;
  return Value(n);
}

template <bool last>
Result<Value> partition(Evaluator& e, const Value& self, Args& a) {
  const std::string by = TEGULA_TRY(text_of(a[0], "partition's separator"));
  if (by.empty()) return invalid_argument("partition's separator is empty");
  const std::string& s = self.str();
  const size_t at = last ? s.rfind(by) : s.find(by);
  Value parts = TEGULA_TRY(at != s.npos ? texts(e, {std::string_view(s).substr(0, at), by,
                                                    std::string_view(s).substr(at + by.size())})
                           : last       ? texts(e, {"", "", s})
                                        : texts(e, {s, "", ""}));
  parts.kind = Kind::kTuple;
  return parts;
}

Result<Value> join(Evaluator& e, const Value& self, Args& a) {
  std::string all;
  bool is_first = true;
  for (const Value& each : TEGULA_TRY(e.iterate(a[0]))) {
    if (!std::exchange(is_first, false)) all += self.str();
    all += TEGULA_TRY(text_of(each, "what join joins"));
    if (all.size() > e.work.most_bytes) break;
  }
  return e.text(std::move(all));
}

// '{} and {}'.format(…) and '%s and %s' | format(…): each is the text of the next value.
Result<Value> format(Evaluator& e, const std::string& text, std::string_view field,
                     const Arguments& given) {
  std::string all;
  size_t n = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const std::string_view rest = std::string_view(text).substr(i);
    if (rest.starts_with(field)) {
      if (n == given.values.size())
        return invalid_argument(cat("a format needs more values than ", n));
      all += TEGULA_TRY(to_text(given.values[n++], e.work));
      i += field.size() - 1;
      continue;
    }
    const bool is_mark = field == "%s" ? rest[0] == '%' : rest[0] == '{' || rest[0] == '}';
    all += rest[0];
    if (!is_mark) continue;
    if (rest.size() < 2 || rest[1] != rest[0])
      return unsupported(cat("a format with more than ", field));
    ++i;
  }
  if (!given.named.empty() || (field == "%s" && n < given.values.size()))
    return invalid_argument("a format of other values than it has fields");
  return e.text(std::move(all));
}

// All characters, one at least.
template <bool (*is_so)(char32_t)>
Result<Value> all_are(Evaluator&, const Value& self, Args&) {
  const std::u32string all = to_code_points(self.str());
  return Value(!all.empty() && all_of(all, is_so));
}
bool is_alpha(char32_t c) { return char_class(c) == CharClass::kLetter; }
bool is_decimal(char32_t c) { return category(c) == Category::kNd; }

template <Result<std::string> (*form)(std::string_view)>
Result<Value> has_case(Evaluator&, const Value& self, Args&) {
  return Value(is_cased(self.str()) && TEGULA_TRY(form(self.str())) == self.str());
}
template <Result<std::string> (*form)(std::string_view)>
Result<Value> formed(Evaluator& e, const Value& self, Args&) {
  return e.text(TEGULA_TRY(form(self.str())));
}
Result<std::string> title(std::string_view text) { return capitalize(text, true); }
Result<std::string> first_upper(std::string_view text) { return capitalize(text, false); }

template <int what>  // keys, values, items
Result<Value> view(Evaluator&, const Value& self, Args&) {
  Args all;
  for (size_t i = 0; i < self.items->size(); i += 2) {
    const Value &key = (*self.items)[i], &value = (*self.items)[i + 1];
    all.push_back(what == 0 ? key : what == 1 ? value : Value::list({key, value}, Kind::kTuple));
  }
  constexpr const char* kNames[] = {"dict_keys", "dict_values", "dict_items"};
  Value v = Value::list(std::move(all), Kind::kView);
  v.text = std::make_shared<const std::string>(kNames[what]);
  return v;
}

Result<Value> get(Evaluator& e, const Value& self, Args& a) {
  if (const Value* found = self.find(a[0], e.work)) return *found;
  return a[1].is(Kind::kMissing) ? Value::none() : a[1];
}

Result<Value> place(Evaluator& e, const Value& self, Args& a) {
  for (size_t i = 0; i < self.items->size(); ++i)
    if (equals((*self.items)[i], a[0], e.work)) return Value(static_cast<int64_t>(i));
  return invalid_argument("index: the list has no such item");
}
Result<Value> times(Evaluator& e, const Value& self, Args& a) {
  int64_t n = 0;
  for (const Value& each : *self.items) n += equals(each, a[0], e.work);
  return Value(n);
}

struct Method {
  std::string_view name, parameters;
  Result<Value> (*run)(Evaluator& e, const Value& self, Args& arguments);
};
constexpr Method kTextMethods[] = {
    {"capitalize", "", formed<first_upper>},
    {"count", "sub", count},
    {"endswith", "suffix", has_affix<true>},
    {"find", "sub", find<false, false>},
    {"index", "sub", find<false, true>},
    {"isalpha", "", all_are<is_alpha>},
    {"isdecimal", "", all_are<is_decimal>},
    {"isdigit", "", all_are<is_decimal>},
    {"islower", "", has_case<lower>},
    {"isspace", "", all_are<is_space>},
    {"isupper", "", has_case<upper>},
    {"join", "iterable", join},
    {"lower", "", formed<lower>},
    {"lstrip", "chars=", stripped<true, false>},
    {"partition", "sep", partition<false>},
    {"removeprefix", "prefix", without_affix<false>},
    {"removesuffix", "suffix", without_affix<true>},
    {"replace", "old new count=",
     [](Evaluator& e, const Value& self, Args& a) -> Result<Value> {
       return e.text(TEGULA_TRY(replaced(self.str(), TEGULA_TRY(text_of(a[0], "what is replaced")),
                                         TEGULA_TRY(text_of(a[1], "what replaces it")),
                                         TEGULA_TRY(count_of(a[2])), e.work)));
     }},
    {"rfind", "sub", find<true, false>},
    {"rindex", "sub", find<true, true>},
    {"rpartition", "sep", partition<true>},
    {"rsplit", "sep= maxsplit=", split<true>},
    {"rstrip", "chars=", stripped<false, true>},
    {"split", "sep= maxsplit=", split<false>},
    {"splitlines", "keepends=",
     [](Evaluator& e, const Value& self, Args& a) {
       return texts(e, split_lines(self.str(), a[0].is_true()));
     }},
    {"startswith", "prefix", has_affix<false>},
    {"strip", "chars=", stripped<true, true>},
    {"title", "", formed<title>},
    {"upper", "", formed<upper>},
};
constexpr Method kDictMethods[] = {
    {"copy", "", [](Evaluator&, const Value& self, Args&) -> Result<Value> { return self; }},
    {"get", "key default=", get},
    {"items", "", view<2>},
    {"keys", "", view<0>},
    {"values", "", view<1>},
};
constexpr Method kListMethods[] = {{"count", "value", times}, {"index", "value", place}};
// Those that Python has beside these. They are methods, but calling them is refused.
constexpr std::string_view kOtherTextMethods =
    " casefold center encode expandtabs format_map isalnum isascii isidentifier isnumeric "
    "isprintable istitle ljust maketrans rjust swapcase translate zfill ";
constexpr std::string_view kOtherDictMethods = " clear fromkeys pop popitem setdefault update ";
constexpr std::string_view kOtherListMethods =
    " append clear copy extend insert pop remove reverse sort ";

struct Methods {
  std::span<const Method> known;
  std::string_view others;
};
Methods methods_of(const Value& v) {
  if (v.is(Kind::kText)) return {kTextMethods, kOtherTextMethods};
  if (v.is(Kind::kDict)) return {kDictMethods, kOtherDictMethods};
  if (v.is(Kind::kList)) return {kListMethods, kOtherListMethods};
  if (v.is(Kind::kTuple)) return {kListMethods, ""};
  return {};
}
}  // namespace

bool Evaluator::has_method(const Value& of, std::string_view name) const {
  const auto [known, others] = methods_of(of);
  const auto is_it = [&](const Method& m) { return m.name == name; };
  return any_of(known, is_it) || (name == "format" && of.is(Kind::kText)) ||
         (!others.empty() && others.find(cat(" ", name, " ")) != others.npos);
}

Result<Value> Evaluator::call_method(const Value& self, const std::string& name,
                                     Arguments&& arguments) {
  if (!work.spend(self.items ? self.items->size() : self.str().size() / 16 + 1))
    return invalid_argument("it does more than a template may");
  if (self.is_safe) return unsupported(cat("the method ", name, " of a text that is safe"));
  if (self.is(Kind::kText) && name.ends_with("format"))
    return format(*this, self.str(), name == "format" ? "{}" : "%s", arguments);
  for (const Method& m : methods_of(self).known) {
    if (m.name != name) continue;
    Args bound =
        TEGULA_TRY(bind(cat(self.type_name(), ".", name), m.parameters, std::move(arguments)));
    return m.run(*this, self, bound);
  }
  return unsupported(cat("the method ", self.type_name(), ".", name));
}

}  // namespace tegula::jinja
