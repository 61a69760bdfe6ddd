// Computes templates' operators, subscripts and functions.
#include <cmath>
#include <ctime>

#include "tegula/base/algorithm.h"
#include "tegula/base/real.h"
#include "tegula/text/normal_form.h"
#include "tegula/text/template_evaluator.h"

namespace tegula::jinja {

using Kind = Value::Kind;
using Is = Node::Kind;

namespace {
constexpr int64_t kMostRange = 100'000;  // of jinja2's sandbox

Error beyond() { return unsupported("an integer beyond 64 bits"); }

std::string escaped(const Value& text) {
  if (text.is_safe) return text.str();
  std::string out;
  for (const char c : text.str()) {
    const size_t at = std::string_view("&<>'\"").find(c);
    constexpr const char* kNames[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    at == std::string_view::npos ? out += c : out += kNames[at];
  }
  return out;
}

Result<Value> integer_power(int64_t base, int64_t n) {
  if (n < 0) return Value(std::pow(static_cast<double>(base), static_cast<double>(n)));
  int64_t all = 1;
  for (; n > 0 && base != 1; --n) {
    if (base == 0 || base == -1) return Value(base == 0 ? int64_t{0} : n % 2 == 0 ? all : -all);
    if (__builtin_mul_overflow(all, base, &all)) return beyond();
  }
  return Value(all);
}

Result<Value> integers(const std::string& op, int64_t a, int64_t b) {
  int64_t r = 0;
  bool is_beyond = false;
  if (op == "+") is_beyond = __builtin_add_overflow(a, b, &r);
  if (op == "-") is_beyond = __builtin_sub_overflow(a, b, &r);
  if (op == "*") is_beyond = __builtin_mul_overflow(a, b, &r);
  if (op == "**") return integer_power(a, b);
  if (op == "//" || op == "%") {
    if (b == -1) return op == "%" ? Value(int64_t{0}) : integers("-", 0, a);
    const int64_t rest = a % b, down = rest != 0 && (rest < 0) != (b < 0);
    r = op == "%" ? rest + down * b : a / b - down;
  }
  if (is_beyond) return beyond();
  return Value(r);
}
}  // namespace

Result<Value> Evaluator::unary(const Node& n) {
  const Value v = TEGULA_TRY(evaluate(n.args[0]));
  if (n.name == "not") return Value(!v.is_true());
  if (v.is(Kind::kUndefined)) return undefined(v);
  if (!v.is_number()) return invalid_argument(cat("'", n.name, "' of a ", v.type_name()));
  if (v.is(Kind::kFloat)) return Value(n.name == "-" ? -v.real : v.real);
  return n.name == "-" ? integers("-", 0, v.integer) : Value(v.integer);
}

Result<Value> Evaluator::arithmetic(const std::string& op, const Value& a, const Value& b) {
  if (op != "+" && op != "-" && op != "*" && op != "**" && b.number() == 0)
    return invalid_argument(cat("'", op, "' by zero"));
  if (a.is_integer() && b.is_integer() && op != "/") return integers(op, a.integer, b.integer);
  const double x = a.number(), y = b.number();
  if (op == "+") return Value(x + y);
  if (op == "-") return Value(x - y);
  if (op == "*") return Value(x * y);
  if (op == "/") return Value(x / y);
  if (op == "//") return Value(real::floor_divide(x, y));
  if (op == "%") return Value(real::remainder(x, y));
  if ((x == 0 && y < 0) || (x < 0 && y != std::floor(y)))
    return unsupported(cat(x, " to the power of ", y));
  return Value(std::pow(x, y));
}

Result<Value> Evaluator::repeat(const Value& of, int64_t times) {
  const int64_t n = std::max<int64_t>(times, 0);
  const auto size = static_cast<int64_t>(of.is(Kind::kText) ? of.str().size() : of.items->size());
  int64_t all = 0;
  if (__builtin_mul_overflow(n, size, &all) || all > static_cast<int64_t>(work.most_bytes) ||
      !work.spend(static_cast<size_t>(of.is(Kind::kText) ? all / 64 + 1 : all)))
    return invalid_argument("it does more than a template may");
  if (of.is(Kind::kText)) {
    std::string made;
    for (int64_t i = 0; i < n && size > 0; ++i) made += of.str();
    return text(std::move(made));
  }
  std::vector<Value> made;
  for (int64_t i = 0; i < n && size > 0; ++i)
    made.insert(made.end(), of.items->begin(), of.items->end());
  return Value::list(std::move(made), of.kind);
}

Result<Value> Evaluator::binary(const std::string& op, const Value& a, const Value& b) {
  if (a.is(Kind::kUndefined)) return undefined(a);
  if (b.is(Kind::kUndefined)) return undefined(b);
  if (a.is_number() && b.is_number()) return arithmetic(op, a, b);
  if (op == "+" && a.is(Kind::kText) && b.is(Kind::kText)) {
    if (!a.is_safe && !b.is_safe) return text(a.str() + b.str());
    Value joined = TEGULA_TRY(text(escaped(a) + escaped(b)));
    joined.is_safe = true;
    return joined;
  }
  if (op == "+" && a.is_sequence() && a.kind == b.kind) {
    if (!work.spend(a.items->size() + b.items->size()))
      return invalid_argument("it does more than a template may");
    std::vector<Value> all = *a.items;
    all.insert(all.end(), b.items->begin(), b.items->end());
    return Value::list(std::move(all), a.kind);
  }
  const auto repeats = [](const Value& v) { return v.is(Kind::kText) || v.is_sequence(); };
  if (op == "*" && repeats(a) && b.is_integer()) return repeat(a, b.integer);
  if (op == "*" && a.is_integer() && repeats(b)) return repeat(b, a.integer);
  if (op == "%" && a.is(Kind::kText)) return unsupported("a format: text % values");
  return invalid_argument(cat("'", op, "' of a ", a.type_name(), " and a ", b.type_name()));
}

Result<bool> Evaluator::contains(const Value& all, const Value& one) {
  if (all.is(Kind::kText)) {
    if (!one.is(Kind::kText))
      return invalid_argument(cat("a ", one.type_name(), " cannot be in a str"));
    (void)work.spend_text(all.str().size());
    return all.str().find(one.str()) != std::string::npos;
  }
  if (all.is(Kind::kDict)) return all.find(one, work) != nullptr;
  if (all.is(Kind::kOnce)) {
    // As much is read as it takes.
    while (!all.items->empty()) {
      const Value first = all.items->front();
      all.items->erase(all.items->begin());
      if (equals(first, one, work)) return true;
    }
    return false;
  }
  for (const Value& each : TEGULA_TRY(iterate(all)))
    if (equals(each, one, work)) return true;
  return false;
}

Result<Value> Evaluator::comparison(const Node& n) {
  Value left = TEGULA_TRY(evaluate(n.args[0]));
  for (size_t i = 1; i < n.args.size(); ++i) {
    const std::string& op = n.args[i].name;
    Value right = TEGULA_TRY(evaluate(n.args[i].args[0]));
    bool is_so = false;
    if (op == "==" || op == "!=") {
      is_so = equals(left, right, work) == (op == "==");
    } else if (op == "in" || op == "not in") {
      is_so = TEGULA_TRY(contains(right, left)) == (op == "in");
    } else {
      if (left.is(Kind::kUndefined)) return undefined(left);
      if (right.is(Kind::kUndefined)) return undefined(right);
      const bool has_nan = (left.is(Kind::kFloat) && std::isnan(left.real)) ||
                           (right.is(Kind::kFloat) && std::isnan(right.real));
      const int order = TEGULA_TRY(compare(left, right, work));
      is_so = op == "<" ? order < 0 : op == "<=" ? order <= 0 : op == ">" ? order > 0 : order >= 0;
      is_so = is_so && !has_nan;
    }
    if (!is_so) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Result<std::vector<Value>> Evaluator::iterate(const Value& v) {
  const size_t size = v.items ? v.items->size() : v.is(Kind::kText) ? v.str().size() : 1;
  if (!work.spend(size)) return invalid_argument("it does more than a template may");
  switch (v.kind) {
    case Kind::kUndefined:
      return std::vector<Value>();
    case Kind::kText: {
      std::vector<Value> all;
      for (const char32_t c : to_code_points(v.str()))
        all.emplace_back(to_utf8(std::u32string_view(&c, 1)));
      return all;
    }
    case Kind::kDict: {
      std::vector<Value> keys;
      for (size_t i = 0; i < v.items->size(); i += 2) keys.push_back((*v.items)[i]);
      return keys;
    }
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
      return *v.items;
    case Kind::kOnce:
      return std::exchange(*v.items, {});
    default:
      return invalid_argument(cat("a ", v.type_name(), " has no items to go through"));
  }
}

Result<Value> Evaluator::attribute(const Value& of, const std::string& name) {
  if (of.is(Kind::kUndefined)) return undefined(of);
  if (of.is(Kind::kLoop) && name != "cycle" && name != "changed")
    return loop_attribute(*of.loop, name);
  if (of.is(Kind::kLoop) || has_method(of, name)) {
    Value method = Value::of(Kind::kMethod, name);
    method.items = std::make_shared<std::vector<Value>>(1, of);
    method.depth = of.depth + 1;
    return method;
  }
  if (of.is(Kind::kNamespace))
    for (const auto& [key, value] : of.space->names)
      if (key == name) return value;
  if (of.is(Kind::kDict))
    if (const Value* found = of.find(Value(name), work)) return *found;
  return Value::undefined(cat(of.type_name(), ".", name));
}

Result<Value> Evaluator::item(const Value& of, const Value& key) {
  if (of.is(Kind::kUndefined)) return undefined(of);
  if (of.is(Kind::kDict)) {
    if (const Value* found = of.find(key, work)) return *found;
  } else if (key.is_integer()) {
    const bool is_range = of.is(Kind::kView) && *of.text == "range";
    int64_t at = key.integer;
    if (of.is(Kind::kText)) {
      if (!work.spend_text(of.str().size())) return invalid_argument("it does too much");
      const std::u32string all = to_code_points(of.str());
      const auto n = static_cast<int64_t>(all.size());
      at += at < 0 ? n : 0;
      if (at >= 0 && at < n) return Value(to_utf8(all.substr(static_cast<size_t>(at), 1)));
    } else if (of.is_sequence() || is_range) {
      const auto n = static_cast<int64_t>(of.items->size());
      at += at < 0 ? n : 0;
      if (at >= 0 && at < n) return (*of.items)[static_cast<size_t>(at)];
    }
    return Value::undefined(cat(of.type_name(), "[", key.integer, "]"));
  }
  if (key.is(Kind::kText)) return attribute(of, key.str());
  return Value::undefined(cat(of.type_name(), "[…]"));
}

Result<Value> Evaluator::by_path(Value of, const Value& path) {
  if (path.is(Kind::kMissing) || path.is(Kind::kNone)) return of;
  if (!path.is(Kind::kText)) return item(of, path);
  std::string_view rest = path.str();
  for (;;) {
    const std::string_view part = rest.substr(0, rest.find('.'));
    const bool is_number =
        !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == part.npos;
    int64_t at = 0;
    for (size_t i = 0; is_number && i < part.size(); ++i) at = at * 10 + (part[i] - '0');
    of = TEGULA_TRY(item(of, is_number ? Value(at) : Value(std::string(part))));
    if (part.size() == rest.size()) return of;
    rest.remove_prefix(part.size() + 1);
  }
}

Result<Value> Evaluator::slice(const Value& of, const Node& bounds) {
  Value given[3];
  for (size_t i = 0; i < 3; ++i) {
    given[i] =
        bounds.args[i].is(Is::kNothing) ? Value::none() : TEGULA_TRY(evaluate(bounds.args[i]));
    if (!given[i].is(Kind::kNone) && !given[i].is_integer())
      return invalid_argument(cat("a slice from or to a ", given[i].type_name()));
  }
  const bool is_range = of.is(Kind::kView) && *of.text == "range";
  if (of.is(Kind::kUndefined)) return undefined(of);
  if (!of.is(Kind::kText) && !of.is_sequence() && !is_range)
    return invalid_argument(cat("a slice of a ", of.type_name()));
  const size_t size = of.is(Kind::kText) ? of.str().size() : of.items->size();
  if (!work.spend(size)) return invalid_argument("it does more than a template may");
  const std::u32string points = of.is(Kind::kText) ? to_code_points(of.str()) : U"";
  const auto n = static_cast<int64_t>(of.is(Kind::kText) ? points.size() : size);
  const int64_t step = given[2].is(Kind::kNone) ? 1 : given[2].integer;
  if (step == 0) return invalid_argument("a slice with a step of 0");
  const auto bound = [&](const Value& v, int64_t otherwise) {
    if (v.is(Kind::kNone)) return otherwise;
    const int64_t at = v.integer < 0 ? std::max(v.integer, -n - 1) + n : v.integer;
    return step > 0 ? std::clamp<int64_t>(at, 0, n) : std::clamp<int64_t>(at, -1, n - 1);
  };
  const int64_t from = bound(given[0], step > 0 ? 0 : n - 1),
                to = bound(given[1], step > 0 ? n : -1);
  std::u32string some;
  std::vector<Value> items;
  const int64_t stride = std::clamp(step, -n - 1, n + 1);
  for (int64_t i = from; step > 0 ? i < to : i > to; i += stride) {
    if (of.is(Kind::kText))
      some += points[static_cast<size_t>(i)];
    else
      items.push_back((*of.items)[static_cast<size_t>(i)]);
  }
  if (of.is(Kind::kText)) return text(to_utf8(some));
  Value made = Value::list(std::move(items), of.kind);
  made.text = of.text;
  return made;
}

namespace {
Result<Value> range(std::vector<Value> bounds, Work& work) {
  for (const Value& each : bounds)
    if (!each.is_integer()) return invalid_argument(cat("range of a ", each.type_name()));
  if (bounds.empty() || bounds.size() > 3) return invalid_argument("range takes 1 to 3 integers");
  const bool has_start = bounds.size() > 1;
  const int64_t from = has_start ? bounds[0].integer : 0, to = bounds[has_start].integer;
  const int64_t step = bounds.size() > 2 ? bounds[2].integer : 1;
  if (step == 0) return invalid_argument("range with a step of 0");
  std::vector<Value> all;
  for (int64_t i = from; step > 0 ? i < to : i > to;) {
    if (static_cast<int64_t>(all.size()) >= kMostRange || !work.spend(1))
      return invalid_argument(cat("a range of more than ", kMostRange));
    all.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  Value made = Value::list(std::move(all), Kind::kView);
  made.text = std::make_shared<const std::string>("range");
  return made;
}
}  // namespace

Result<Value> Evaluator::call_function(const std::string& name, Arguments&& given) {
  if (name == "range") {
    if (!given.named.empty()) return invalid_argument("range takes no names");
    return range(std::move(given.values), work);
  }
  if (name == "raise_exception") {
    const auto bound = TEGULA_TRY(bind(name, "message", std::move(given)));
    has_line_ = true;
    return invalid_argument(
        cat("it refuses these messages: ", TEGULA_TRY(to_text(bound[0], work))));
  }
  if (name == "strftime_now") {
    const auto bound = TEGULA_TRY(bind(name, "format", std::move(given)));
    if (!bound[0].is(Kind::kText)) return invalid_argument("strftime_now needs a text");
    const std::time_t now = now_ >= 0 ? static_cast<std::time_t>(now_) : std::time(nullptr);
    std::tm parts{};
    localtime_r(&now, &parts);
    char buffer[4096];
    const std::string format = bound[0].str() + '.';  // so that nothing is no error
    const size_t n = std::strftime(buffer, sizeof buffer, format.c_str(), &parts);
    if (n == 0) return invalid_argument("strftime_now's text is too long");
    return text(std::string(buffer, n - 1));
  }
  if (name != "namespace" && name != "dict") return unsupported(cat("the function ", name));
  // A dict, and names.
  if (given.values.size() > 1) return invalid_argument(cat(name, " takes one dict at most"));
  std::vector<Value> all;
  if (!given.values.empty()) {
    const Value& first = given.values[0];
    if (!first.is(Kind::kDict)) return unsupported(cat(name, " of a ", first.type_name()));
    all = *first.items;
  }
  Value made = Value::list(std::move(all), Kind::kDict);
  for (auto& [key, value] : given.named) {
    if (const Value* old = made.find(Value(key), work))
      *const_cast<Value*>(old) = std::move(value);
    else
      made.items->emplace_back(key), made.items->push_back(std::move(value));
  }
  if (name == "dict") return Value::list(std::move(*made.items), Kind::kDict);
  Value space = Value::of(Kind::kNamespace);
  space.space = &spaces_.emplace_back();
  for (size_t i = 0; i < made.items->size(); i += 2) {
    const Value& key = (*made.items)[i];
    if (!key.is(Kind::kText) || key.str().starts_with('_'))
      return invalid_argument("a namespace's names are texts that begin without '_'");
    space.space->names.emplace_back(key.str(), (*made.items)[i + 1]);
  }
  return space;
}

}  // namespace tegula::jinja
