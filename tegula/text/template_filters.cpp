// Jinja's filters and tests, each a row of a table.
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "tegula/base/algorithm.h"
#include "tegula/text/normal_form.h"
#include "tegula/text/template_evaluator.h"
#include "tegula/text/template_text.h"

namespace tegula::jinja {

using Kind = Value::Kind;

namespace {
using Args = std::vector<Value>;

Error no_filter(std::string_view what, const Value& of) {
  return invalid_argument(cat("the filter ", what, " of a ", of.type_name()));
}

bool is_given(const Value& v) { return !v.is(Kind::kMissing); }
Result<int64_t> integer_of(const Value& v, int64_t otherwise, std::string_view what) {
  if (v.is(Kind::kMissing)) return otherwise;
  if (v.is_integer()) return v.integer;
  return invalid_argument(cat(what, " must be an integer, not a ", v.type_name()));
}

Result<Value> once(Args items) { return Value::list(std::move(items), Kind::kOnce); }

// The keys that sort, unique, min and max compare: by an attribute, without regard to case.
Result<Value> key_of(Evaluator& e, const Value& v, const Value& path, const Value& minds_case) {
  Value key = TEGULA_TRY(e.by_path(v, path));
  if (!key.is(Kind::kText) || minds_case.is_true()) return key;
  return Value(TEGULA_TRY(lower(key.str())));
}

Result<Args> sorted(Evaluator& e, const Args& items, const Args& keys, bool reverse) {
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  Status ordered;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (!ordered.ok()) return false;
    const auto c = compare(keys[reverse ? b : a], keys[reverse ? a : b], e.work);
    if (!c.ok()) ordered = c.error();
    return c.ok() && *c < 0;
  });
  TEGULA_TRY(std::move(ordered));
  Args all;
  for (const size_t i : order) all.push_back(items[i]);
  return all;
}

Result<Value> sort(Evaluator& e, Value& of, Args& a) {
  const Args items = TEGULA_TRY(e.iterate(of));
  if (a[2].is(Kind::kText) && a[2].str().find(',') != std::string::npos)
    return unsupported("the filter sort by several attributes");
  Args keys;
  for (const Value& each : items) keys.push_back(TEGULA_TRY(key_of(e, each, a[2], a[1])));
  return Value::list(TEGULA_TRY(sorted(e, items, keys, a[0].is_true())));
}

Result<Value> dictsort(Evaluator& e, Value& of, Args& a) {
  if (!of.is(Kind::kDict)) return no_filter("dictsort", of);
  const bool by_value = a[1].is(Kind::kText) && a[1].str() == "value";
  Args items, keys;
  for (size_t i = 0; i < of.items->size(); i += 2) {
    const Value &key = (*of.items)[i], &value = (*of.items)[i + 1];
    items.push_back(Value::list({key, value}, Kind::kTuple));
    keys.push_back(TEGULA_TRY(key_of(e, by_value ? value : key, Value::none(), a[0])));
  }
  return Value::list(TEGULA_TRY(sorted(e, items, keys, a[2].is_true())));
}

Result<Value> unique(Evaluator& e, Value& of, Args& a) {
  Args found, keys;
  for (const Value& each : TEGULA_TRY(e.iterate(of))) {
    Value key = TEGULA_TRY(key_of(e, each, a[1], a[0]));
    const auto is_it = [&](const Value& k) { return equals(k, key, e.work); };
    if (std::any_of(keys.begin(), keys.end(), is_it)) continue;
    found.push_back(each), keys.push_back(std::move(key));
  }
  return once(std::move(found));
}

template <int sign>
Result<Value> extreme(Evaluator& e, Value& of, Args& a) {
  Value best = Value::undefined("the largest or smallest of nothing"), best_key;
  bool has_one = false;
  for (const Value& each : TEGULA_TRY(e.iterate(of))) {
    Value key = TEGULA_TRY(key_of(e, each, a[1], a[0]));
    if (has_one && TEGULA_TRY(compare(key, best_key, e.work)) * sign <= 0) continue;
    best = each, best_key = std::move(key), has_one = true;
  }
  return best;
}

Result<Value> tojson(Evaluator& e, Value& of, Args& a) {
  JsonStyle style;
  style.ascii = a[0].is_true(), style.sorts = a[3].is_true();
  std::string indent;
  if (is_given(a[1]) && !a[1].is(Kind::kNone)) {
    const int64_t n = a[1].is(Kind::kText) ? 0 : TEGULA_TRY(integer_of(a[1], 0, "indent"));
    indent = a[1].is(Kind::kText)
                 ? a[1].str()
                 : std::string(static_cast<size_t>(std::clamp<int64_t>(n, 0, 1000)), ' ');
    style.indent = &indent, style.comma.pop_back();
  }
  if (is_given(a[2]) && !a[2].is(Kind::kNone)) {
    if (!a[2].is_sequence() || a[2].items->size() != 2 || !(*a[2].items)[0].is(Kind::kText) ||
        !(*a[2].items)[1].is(Kind::kText))
      return invalid_argument("tojson's separators are two texts");
    style.comma = (*a[2].items)[0].str(), style.colon = (*a[2].items)[1].str();
  }
  return e.text(TEGULA_TRY(to_json_text(of, style, e.work)));
}

Result<Value> join(Evaluator& e, Value& of, Args& a) {
  const std::string between = is_given(a[0]) ? TEGULA_TRY(to_text(a[0], e.work)) : "";
  std::string all;
  bool is_first = true;
  for (const Value& each : TEGULA_TRY(e.iterate(of))) {
    if (!std::exchange(is_first, false)) all += between;
    all += TEGULA_TRY(to_text(TEGULA_TRY(e.by_path(each, a[1])), e.work));
    if (!e.work.spend_text(0) || all.size() > e.work.most_bytes) break;
  }
  return e.text(std::move(all));
}

Result<Value> indent(Evaluator& e, Value& of, Args& a) {
  const int64_t n = a[0].is(Kind::kText) ? 0 : TEGULA_TRY(integer_of(a[0], 4, "indent's width"));
  const std::string by =
      a[0].is(Kind::kText)
          ? a[0].str()
          : std::string(static_cast<size_t>(std::clamp<int64_t>(n, 0, 1 << 16)), ' ');
  std::string all = a[1].is_true() ? by : "";
  bool is_first = true;
  const std::string text = TEGULA_TRY(to_text(of, e.work)) + "\n";
  for (const std::string_view line : split_lines(text, false)) {
    if (!is_first) all += '\n';
    if (!is_first && (!line.empty() || a[2].is_true())) all += by;
    all += line;
    is_first = false;
    if (all.size() > e.work.most_bytes) break;
  }
  return e.text(std::move(all));
}

Result<Value> length(Evaluator&, Value& of, Args&) {
  if (of.is(Kind::kText)) return Value(static_cast<int64_t>(to_code_points(of.str()).size()));
  if (of.is(Kind::kUndefined)) return Value(int64_t{0});
  if (of.items == nullptr || of.is(Kind::kOnce) || of.is(Kind::kMethod))
    return no_filter("length", of);
  return Value(static_cast<int64_t>(of.items->size() / (of.is(Kind::kDict) ? 2 : 1)));
}

Result<Value> first(Evaluator& e, Value& of, Args&) {
  Args items = TEGULA_TRY(e.iterate(of));
  if (items.empty()) return Value::undefined("the first of nothing");
  if (of.is(Kind::kOnce)) of.items->assign(items.begin() + 1, items.end());
  return items[0];
}

Result<Value> last(Evaluator& e, Value& of, Args&) {
  if (of.is(Kind::kOnce)) return no_filter("last", of);
  Args items = TEGULA_TRY(e.iterate(of));
  if (items.empty()) return Value::undefined("the last of nothing");
  return items.back();
}

Result<Value> reverse(Evaluator& e, Value& of, Args&) {
  Args items = TEGULA_TRY(e.iterate(of));
  std::reverse(items.begin(), items.end());
  if (!of.is(Kind::kText)) return once(std::move(items));
  std::string all;
  for (const Value& each : items) all += each.str();
  return e.text(std::move(all));
}

Result<Value> items_of(Evaluator&, Value& of, Args&) {
  Args all;
  if (of.is(Kind::kUndefined)) return once({});
  if (!of.is(Kind::kDict)) return no_filter("items", of);
  for (size_t i = 0; i < of.items->size(); i += 2)
    all.push_back(Value::list({(*of.items)[i], (*of.items)[i + 1]}, Kind::kTuple));
  return once(std::move(all));
}

// int(text) and float(text) as Python reads them; false: they are no number.
bool read_integer(std::string_view text, int base, int64_t& x) {
  std::string digits(strip(text, true, true));
  if (digits.empty() || digits[0] == '_' || digits.back() == '_' ||
      digits.find("__") != digits.npos)
    return false;
  std::erase(digits, '_');
  const size_t sign = digits[0] == '+' || digits[0] == '-';
  const char kind = digits.size() > sign + 2 ? static_cast<char>(digits[sign + 1] | 32) : ' ';
  if (digits[sign] == '0' && base == (kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0))
    digits.erase(sign, 2);
  const bool has_plus = digits[0] == '+';
  const char* end = digits.data() + digits.size();
  const auto read = std::from_chars(digits.data() + has_plus, end, x, base);
  return read.ec == std::errc() && read.ptr == end && !(has_plus && digits[1] == '-');
}
bool read_float(std::string_view text, double& x) {
  std::string digits(strip(text, true, true));
  std::erase(digits, '_');
  const bool has_plus = digits.starts_with('+');
  const char* end = digits.data() + digits.size();
  const auto read = std::from_chars(digits.data() + has_plus, end, x);
  return !digits.empty() && read.ec == std::errc() && read.ptr == end;
}

Result<Value> to_int(Evaluator&, Value& of, Args& a) {
  const Value otherwise = is_given(a[0]) ? a[0] : Value(int64_t{0});
  const int64_t base = TEGULA_TRY(integer_of(a[1], 10, "int's base"));
  if (base < 2 || base > 36) return unsupported(cat("the filter int of base ", base));
  if (of.is(Kind::kUndefined)) return no_filter("int", of);
  double x = of.is_number() ? of.number() : 0;
  int64_t n = 0;
  if (of.is_integer()) return Value(of.integer);
  if (of.is(Kind::kText) && read_integer(of.str(), static_cast<int>(base), n)) return Value(n);
  if (!of.is(Kind::kFloat) && (!of.is(Kind::kText) || !read_float(of.str(), x))) return otherwise;
  if (!std::isfinite(x)) return otherwise;
  if (std::fabs(x) >= 9.2e18) return unsupported("an integer beyond 64 bits");
  return Value(static_cast<int64_t>(x));
}

Result<Value> to_float(Evaluator&, Value& of, Args& a) {
  double x = 0;
  if (of.is(Kind::kUndefined)) return no_filter("float", of);
  if (of.is_number()) return Value(of.number());
  if (of.is(Kind::kText) && read_float(of.str(), x)) return Value(x);
  return is_given(a[0]) ? a[0] : Value(0.0);
}

Result<Value> round(Evaluator&, Value& of, Args& a) {
  if (!of.is_number()) return no_filter("round", of);
  const int64_t digits = TEGULA_TRY(integer_of(a[0], 0, "round's precision"));
  const std::string method = a[1].is(Kind::kText) ? a[1].str() : "common";
  if (digits < 0 || digits > 15) return unsupported(cat("the filter round to ", digits, " digits"));
  if (method == "common") {
    if (of.is_integer()) return Value(of.integer);
    char buffer[512];
    std::snprintf(buffer, sizeof buffer, "%.*f", static_cast<int>(digits), of.real);
    return Value(std::strtod(buffer, nullptr));
  }
  if (method != "ceil" && method != "floor") return invalid_argument(cat("round by ", method));
  const double scale = std::pow(10.0, static_cast<double>(digits)), x = of.number() * scale;
  return Value((method == "ceil" ? std::ceil(x) : std::floor(x)) / scale);
}

Result<Value> absolute(Evaluator&, Value& of, Args&) {
  if (!of.is_number()) return no_filter("abs", of);
  if (of.is(Kind::kFloat)) return Value(std::fabs(of.real));
  if (of.integer == INT64_MIN) return unsupported("an integer beyond 64 bits");
  return Value(of.integer < 0 ? -of.integer : of.integer);
}

Result<Value> otherwise(Evaluator&, Value& of, Args& a) {
  if (of.is_defined() && (!a[1].is_true() || of.is_true())) return of;
  return is_given(a[0]) ? a[0] : Value("");
}

Result<Value> safe(Evaluator& e, Value& of, Args&) {
  Value v = TEGULA_TRY(e.text(TEGULA_TRY(to_text(of, e.work))));
  v.is_safe = true;
  return v;
}

Result<std::string> title(std::string_view text) {
  std::string all;
  while (!text.empty()) {
    const size_t n = std::min(text.find_first_of("- \t\n\r\f\v({[<"), text.size());
    if (n > 0) {
      const std::u32string word = to_code_points(text.substr(0, n));
      all += TEGULA_TRY(upper(to_utf8(word.substr(0, 1))));
      all += TEGULA_TRY(lower(to_utf8(word.substr(1))));
    }
    if (n < text.size()) all += text[n];
    text.remove_prefix(std::min(n + 1, text.size()));
  }
  return all;
}

struct Filter {
  std::string_view name, parameters;  // as bind() has them
  Result<Value> (*run)(Evaluator& e, Value& of, Args& arguments);
};
constexpr std::string_view kDefault = "default_value= boolean=";
Result<Value> list(Evaluator& e, Value& of, Args&) {
  return Value::list(TEGULA_TRY(e.iterate(of)));
}
Result<Value> string(Evaluator& e, Value& of, Args&) {
  if (of.is(Kind::kText)) return of;
  return e.text(TEGULA_TRY(to_text(of, e.work)));
}
Result<Value> as_title(Evaluator& e, Value& of, Args&) {
  return e.text(TEGULA_TRY(title(TEGULA_TRY(to_text(of, e.work)))));
}

constexpr Filter kFilters[] = {
    {"abs", "", absolute},
    {"count", "", length},
    {"d", kDefault, otherwise},
    {"default", kDefault, otherwise},
    {"dictsort", "case_sensitive= by= reverse=", dictsort},
    {"first", "", first},
    {"float", "default=", to_float},
    {"indent", "width= first= blank=", indent},
    {"int", "default= base=", to_int},
    {"items", "", items_of},
    {"join", "d= attribute=", join},
    {"last", "", last},
    {"length", "", length},
    {"list", "", list},
    {"max", "case_sensitive= attribute=", extreme<1>},
    {"min", "case_sensitive= attribute=", extreme<-1>},
    {"reverse", "", reverse},
    {"round", "precision= method=", round},
    {"safe", "", safe},
    {"sort", "reverse= case_sensitive= attribute=", sort},
    {"string", "", string},
    {"title", "", as_title},
    {"tojson", "ensure_ascii= indent= separators= sort_keys=", tojson},
    {"unique", "case_sensitive= attribute=", unique},
};
// Those that are a method of the value's text.
constexpr std::string_view kTextFilters[][2] = {
    {"capitalize", "capitalize"}, {"format", "% format"}, {"lower", "lower"},
    {"replace", "replace"},       {"trim", "strip"},      {"upper", "upper"}};

struct Test {
  std::string_view name;
  size_t n_arguments;
  Result<bool> (*run)(Evaluator& e, const Value& v, const Value& with);
};
template <bool (*is_so)(int order)>
Result<bool> ordered(Evaluator& e, const Value& v, const Value& with) {
  return is_so(TEGULA_TRY(compare(v, with, e.work)));
}
template <Kind kind>
Result<bool> is_kind(Evaluator&, const Value& v, const Value&) {
  return v.is(kind);
}
template <int value>
Result<bool> is_bool(Evaluator&, const Value& v, const Value&) {
  return v.is(Kind::kBool) && v.integer == value;
}
template <int rest>
Result<bool> has_rest(Evaluator&, const Value& v, const Value&) {
  if (!v.is_integer()) return invalid_argument(cat("odd and even of a ", v.type_name()));
  return (v.integer & 1) == rest;
}
Result<bool> is_equal(Evaluator& e, const Value& v, const Value& with) {
  return equals(v, with, e.work);
}
Result<bool> is_unequal(Evaluator& e, const Value& v, const Value& with) {
  return !equals(v, with, e.work);
}
bool is_less(int c) { return c < 0; }
bool is_at_most(int c) { return c <= 0; }
bool is_greater(int c) { return c > 0; }
bool is_at_least(int c) { return c >= 0; }
Result<bool> is_same(Evaluator& e, const Value& v, const Value& with) {
  if (v.is(Kind::kNone) || v.is(Kind::kBool) || with.is(Kind::kNone) || with.is(Kind::kBool))
    return v.kind == with.kind && v.integer == with.integer;
  if (v.kind == with.kind && equals(v, with, e.work))
    return unsupported("the test sameas of equal values");
  return false;
}
Result<bool> is_callable(Evaluator&, const Value& v, const Value&) {
  return v.kind >= Kind::kMethod || v.is(Kind::kUndefined);
}
Result<bool> is_defined(Evaluator&, const Value& v, const Value&) { return v.is_defined(); }
Result<bool> is_divisible(Evaluator&, const Value& v, const Value& with) {
  if (!v.is_integer() || !with.is_integer() || with.integer == 0)
    return invalid_argument("divisibleby needs integers, not 0");
  return with.integer == -1 || v.integer % with.integer == 0;
}
Result<bool> is_in(Evaluator& e, const Value& v, const Value& with) { return e.contains(with, v); }
Result<bool> is_iterable(Evaluator&, const Value& v, const Value&) {
  return v.is(Kind::kUndefined) || (v.kind >= Kind::kText && v.kind <= Kind::kOnce);
}
Result<bool> is_number(Evaluator&, const Value& v, const Value&) { return v.is_number(); }
Result<bool> is_sequence(Evaluator&, const Value& v, const Value&) {
  return v.is(Kind::kUndefined) || (v.kind >= Kind::kText && v.kind <= Kind::kDict) ||
         (v.is(Kind::kView) && *v.text == "range");
}

constexpr Test kTests[] = {
    {"boolean", 0, is_kind<Kind::kBool>},
    {"callable", 0, is_callable},
    {"defined", 0, is_defined},
    {"divisibleby", 1, is_divisible},
    {"even", 0, has_rest<0>},
    {"eq", 1, is_equal},
    {"equalto", 1, is_equal},
    {"==", 1, is_equal},
    {"false", 0, is_bool<0>},
    {"float", 0, is_kind<Kind::kFloat>},
    {"ge", 1, ordered<is_at_least>},
    {"greaterthan", 1, ordered<is_greater>},
    {"gt", 1, ordered<is_greater>},
    {"in", 1, is_in},
    {"integer", 0, is_kind<Kind::kInt>},
    {"iterable", 0, is_iterable},
    {"le", 1, ordered<is_at_most>},
    {"lessthan", 1, ordered<is_less>},
    {"lt", 1, ordered<is_less>},
    {"mapping", 0, is_kind<Kind::kDict>},
    {"ne", 1, is_unequal},
    {"!=", 1, is_unequal},
    {"none", 0, is_kind<Kind::kNone>},
    {"number", 0, is_number},
    {"odd", 0, has_rest<1>},
    {"sameas", 1, is_same},
    {"sequence", 0, is_sequence},
    {"string", 0, is_kind<Kind::kText>},
    {"true", 0, is_bool<1>},
    {"undefined", 0, is_kind<Kind::kUndefined>},
};

// map, select, reject, selectattr and rejectattr, whose arguments are those of another filter or of
// a test.
Result<Value> each_one(Evaluator& e, const std::string& what, const Value& of, Arguments&& given) {
  const bool maps = what == "map", by_attribute = what.ends_with("attr");
  const bool keeps = what.starts_with("select");
  if (!of.is_true()) return once({});  // none, too
  Args made;
  Value path = Value::of(Kind::kMissing), instead = path;
  auto& values = given.values;
  if (maps && values.empty()) {
    Args bound = TEGULA_TRY(bind(what, "attribute default=", Arguments(given)));
    path = std::move(bound[0]), instead = std::move(bound[1]);
  } else if (by_attribute) {
    if (values.empty()) return invalid_argument(cat(what, " needs an attribute"));
    path = std::move(values[0]);
    values.erase(values.begin());
  }
  std::string name;
  if (!values.empty()) {
    if (!values[0].is(Kind::kText)) return invalid_argument(cat(what, " needs a name"));
    name = values[0].str();
    values.erase(values.begin());
  }
  for (Value& each : TEGULA_TRY(e.iterate(of))) {
    Value v = TEGULA_TRY(e.by_path(each, path));
    if (maps && !v.is_defined() && is_given(instead)) v = instead;
    if (maps) {
      if (!name.empty()) v = TEGULA_TRY(e.filter(name, std::move(v), Arguments(given)));
      made.push_back(std::move(v));
      continue;
    }
    const bool is_so = name.empty() ? v.is_true() : TEGULA_TRY(e.test(name, v, Arguments(given)));
    if (is_so == keeps) made.push_back(std::move(each));
  }
  return once(std::move(made));
}
}  // namespace

Result<Value> Evaluator::filter(const std::string& name, Value of, Arguments&& arguments) {
  if (!work.spend(of.items ? of.items->size() : of.is(Kind::kText) ? of.str().size() / 64 : 1))
    return invalid_argument("it does more than a template may");
  for (const char* each : {"map", "select", "reject", "selectattr", "rejectattr"})
    if (name == each) return each_one(*this, name, of, std::move(arguments));
  for (const auto& [filter, method] : kTextFilters) {
    if (name != filter) continue;
    const bool is_text = name != "replace";
    for (size_t i = 0; i < std::min<size_t>(arguments.values.size(), 2) && !is_text; ++i)
      arguments.values[i] = Value(TEGULA_TRY(to_text(arguments.values[i], work)));
    of = TEGULA_TRY(text(TEGULA_TRY(to_text(of, work))));
    return call_method(of, std::string(method), std::move(arguments));
  }
  for (const Filter& f : kFilters) {
    if (f.name != name) continue;
    Args bound = TEGULA_TRY(bind(cat("the filter ", name), f.parameters, std::move(arguments)));
    return f.run(*this, of, bound);
  }
  return unsupported(cat("the filter ", name));
}

Result<bool> Evaluator::test(const std::string& name, const Value& of, Arguments&& arguments) {
  if (name == "lower" || name == "upper") {
    const Value its = TEGULA_TRY(text(TEGULA_TRY(to_text(of, work))));
    return TEGULA_TRY(call_method(its, cat("is", name), std::move(arguments))).is_true();
  }
  for (const Test& t : kTests) {
    if (t.name != name) continue;
    const Args bound = TEGULA_TRY(
        bind(cat("the test ", name), t.n_arguments == 1 ? "value" : "", std::move(arguments)));
    return t.run(*this, of, bound.empty() ? of : bound[0]);
  }
  return unsupported(cat("the test ", name));
}

}  // namespace tegula::jinja
