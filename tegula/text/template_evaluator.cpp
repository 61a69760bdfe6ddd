#include "tegula/text/template_evaluator.h"

#include "tegula/base/algorithm.h"
#include "tegula/base/amounts.h"
#include "tegula/io/json.h"

namespace tegula::jinja {

using Kind = Value::Kind;
using Is = Node::Kind;

namespace {
constexpr int kMostLevels = 1000;  // of calls of ours

// In a list of names and values; null pointer: it has none.
template <class Names>
auto* find_in(Names& names, std::string_view name) {
  for (auto& [key, value] : names)
    if (key == name) return &value;
  return static_cast<decltype(&names.front().second)>(nullptr);
}

template <class Names>
void put_in(Names& names, const std::string& name, Value value) {
  if (Value* old = find_in(names, name))
    *old = std::move(value);
  else
    names.emplace_back(name, std::move(value));
}
}  // namespace

struct Evaluator::Level {
  explicit Level(int& depth) : depth_(depth) { ++depth_; }
  ~Level() { --depth_; }
  int& depth_;
};

Result<std::vector<Value>> bind(std::string_view what, std::string_view parameters,
                                Arguments&& arguments) {
  std::vector<Value> bound;
  size_t n_used = 0;
  while (!parameters.empty()) {
    std::string_view name = parameters.substr(0, parameters.find(' '));
    parameters.remove_prefix(std::min(name.size() + 1, parameters.size()));
    const bool may_lack = name.ends_with('=');
    if (may_lack) name.remove_suffix(1);
    Value* named = find_in(arguments.named, name);
    if (bound.size() < arguments.values.size()) {
      if (named != nullptr) return invalid_argument(cat(what, ": ", name, " is given twice"));
      bound.push_back(std::move(arguments.values[bound.size()]));
    } else if (named != nullptr) {
      bound.push_back(std::move(*named)), ++n_used;
    } else {
      if (!may_lack) return invalid_argument(cat(what, " needs ", name));
      bound.push_back(Value::of(Kind::kMissing));
    }
  }
  if (arguments.values.size() > bound.size() || n_used < arguments.named.size())
    return invalid_argument(cat(what, ": arguments that it does not take"));
  return bound;
}

Evaluator::Evaluator(const Json& variables, const TemplateLimits& limits)
    : work{limits.steps, limits.text_bytes}, now_(limits.now) {
  scope_ = new_scope(nullptr);
  if (const auto* object = variables.as<Json::Object>())
    for (const auto& [name, value] : *object) scope_->names.emplace_back(name, Value::from(value));
}

Result<std::string> Evaluator::render(const Node& root) {
  TEGULA_TRY(execute(root));
  return std::move(out_);
}

Scope* Evaluator::new_scope(Scope* parent) {
  scopes_.push_back({parent, {}});
  return &scopes_.back();
}

Error Evaluator::undefined(const Value& value) const {
  return invalid_argument(cat("'", *value.text, "' is undefined"));
}

Result<Value> Evaluator::text(std::string text) {
  if (work.spend_text(text.size())) return Value(std::move(text));
  return invalid_argument("it does more than a template may");
}

Value Evaluator::look_up(const std::string& name) const {
  for (const Scope* s = scope_; s != nullptr; s = s->parent)
    if (const Value* found = find_in(s->names, name)) return *found;
  for (const char* function : {"range", "namespace", "dict", "raise_exception", "strftime_now",
                               "cycler", "joiner", "lipsum"})
    if (name == function) return Value::of(Kind::kFunction, name);
  return Value::undefined(name);
}

// Errors of what has no line of its own get the innermost one.
Result<Value> Evaluator::evaluate(const Node& n) {
  const Level level(depth_);
  if (!work.spend(1) || depth_ > kMostLevels)
    return invalid_argument(cat("line ", n.line, ": it does more than a template may (",
                                depth_ > kMostLevels ? "calls in calls" : "steps or bytes", ")"));
  Result<Value> result = evaluate_at(n);
  if (result.ok() && result->depth > kMaxDepth)
    result = unsupported(cat("a value of more than ", kMaxDepth, " levels"));
  if (result.ok() || has_line_) return result;
  has_line_ = true;
  return named(cat("line ", n.line), std::move(result));
}

Result<Value> Evaluator::evaluate_at(const Node& n) {
  switch (n.kind) {
    case Is::kConst:
      return n.value;
    case Is::kHole:
      return *hole_;
    case Is::kName:
      return look_up(n.name);
    case Is::kAttribute:
      return attribute(TEGULA_TRY(evaluate(n.args[0])), n.name);
    case Is::kItem: {
      const Value of = TEGULA_TRY(evaluate(n.args[0]));
      if (n.args[1].is(Is::kSlice)) return slice(of, n.args[1]);
      return item(of, TEGULA_TRY(evaluate(n.args[1])));
    }
    case Is::kCall: {
      const Value what = TEGULA_TRY(evaluate(n.args[0]));
      return call(what, TEGULA_TRY(arguments(n)));
    }
    case Is::kFilter: {
      Value of = TEGULA_TRY(evaluate(n.args[0]));
      return filter(n.name, std::move(of), TEGULA_TRY(arguments(n)));
    }
    case Is::kTest: {
      const Value of = TEGULA_TRY(evaluate(n.args[0]));
      return Value(TEGULA_TRY(test(n.name, of, TEGULA_TRY(arguments(n)))));
    }
    case Is::kUnary:
      return unary(n);
    case Is::kBinary: {
      const Value a = TEGULA_TRY(evaluate(n.args[0]));
      return binary(n.name, a, TEGULA_TRY(evaluate(n.args[1])));
    }
    case Is::kAnd:
    case Is::kOr: {
      Value a = TEGULA_TRY(evaluate(n.args[0]));
      return a.is_true() == n.is(Is::kOr) ? a : evaluate(n.args[1]);
    }
    case Is::kCompare:
      return comparison(n);
    case Is::kConcat: {
      std::string all;
      for (const Node& each : n.args) {
        all += TEGULA_TRY(to_text(TEGULA_TRY(evaluate(each)), work));
        if (all.size() > work.most_bytes) break;
      }
      return text(std::move(all));
    }
    case Is::kChoice:
      if (TEGULA_TRY(evaluate(n.args[0])).is_true()) return evaluate(n.args[1]);
      if (n.args[2].is(Is::kNothing)) return Value::undefined("the value of an if without else");
      return evaluate(n.args[2]);
    case Is::kList:
    case Is::kTuple: {
      std::vector<Value> items;
      for (const Node& each : n.args) items.push_back(TEGULA_TRY(evaluate(each)));
      return Value::list(std::move(items), n.is(Is::kList) ? Kind::kList : Kind::kTuple);
    }
    case Is::kDict: {
      Value v = Value::list({}, Kind::kDict);
      for (size_t i = 0; i < n.args.size(); i += 2) {
        const Value key = TEGULA_TRY(evaluate(n.args[i]));
        Value value = TEGULA_TRY(evaluate(n.args[i + 1]));
        v.depth = std::max(v.depth, value.depth + 1);
        if (const Value* old = v.find(key, work))
          *const_cast<Value*>(old) = std::move(value);
        else
          v.items->push_back(key), v.items->push_back(std::move(value));
      }
      return v;
    }
    default:
      return internal_error("a statement is no expression");
  }
}

Result<Arguments> Evaluator::arguments(const Node& n) {
  Arguments all;
  for (size_t i = 1; i < n.args.size(); ++i) {
    if (!n.args[i].is(Is::kKeyword)) {
      all.values.push_back(TEGULA_TRY(evaluate(n.args[i])));
      continue;
    }
    const Value value = TEGULA_TRY(evaluate(n.args[i].args[0]));
    if (n.args[i].name == "*") {
      for (Value& each : TEGULA_TRY(iterate(value))) all.values.push_back(std::move(each));
      continue;
    }
    const bool are_many = n.args[i].name == "**";
    if (are_many && !value.is(Kind::kDict))
      return invalid_argument(cat("arguments behind ** are a ", value.type_name(), ", not a dict"));
    for (size_t k = 0; k < (are_many ? value.items->size() : 2); k += 2) {
      const Value name = are_many ? (*value.items)[k] : Value(n.args[i].name);
      if (!name.is(Kind::kText) || find_in(all.named, name.str()))
        return invalid_argument(cat("the argument ", TEGULA_TRY(to_text(name, work)),
                                    " is given twice, or is no text"));
      all.named.emplace_back(name.str(), are_many ? (*value.items)[k + 1] : value);
    }
  }
  return all;
}

Result<Value> Evaluator::call(const Value& what, Arguments&& arguments) {
  switch (what.kind) {
    case Kind::kUndefined:
      return undefined(what);
    case Kind::kMacro:
      return call_macro(what, std::move(arguments));
    case Kind::kFunction:
      return call_function(*what.text, std::move(arguments));
    case Kind::kMethod: {
      const Value self = (*what.items)[0];
      if (self.is(Kind::kLoop)) return call_loop(*self.loop, *what.text, std::move(arguments));
      return call_method(self, *what.text, std::move(arguments));
    }
    default:
      return invalid_argument(cat("a ", what.type_name(), " cannot be called"));
  }
}

Result<Value> Evaluator::call_macro(const Value& value, Arguments&& arguments) {
  const Node& macro = *value.macro;
  const Value caller = caller_ != nullptr ? *caller_ : Value::undefined("caller");
  caller_ = nullptr;
  std::string parameters;
  for (size_t i = 0; i + 1 < macro.args.size(); ++i)
    parameters += cat(i > 0 ? " " : "", macro.args[i].name, "=");
  auto bound = TEGULA_TRY(bind(cat("the macro ", macro.name), parameters, std::move(arguments)));
  Scope* outer = std::exchange(scope_, new_scope(value.scope));
  std::string text_before = std::exchange(out_, "");
  const auto run = [&]() -> Status {
    scope_->names.emplace_back("caller", caller);
    for (size_t i = 0; i < bound.size(); ++i) {
      const Node& otherwise = macro.args[i].args[0];
      if (bound[i].is(Kind::kMissing))
        bound[i] = otherwise.is(Is::kNothing) ? Value::undefined(macro.args[i].name)
                                              : TEGULA_TRY(evaluate(otherwise));
      put_in(scope_->names, macro.args[i].name, std::move(bound[i]));
    }
    TEGULA_TRY(execute(macro.body()));
    return {};
  };
  const Status ran = run();
  scope_ = outer;
  std::string made = std::exchange(out_, std::move(text_before));
  if (!ran.ok()) return ran.error();
  return text(std::move(made));
}

Result<Value> Evaluator::captured(const Node& body, const Node& filters) {
  std::string text_before = std::exchange(out_, "");
  Scope* outer = std::exchange(scope_, new_scope(scope_));
  const auto flow = execute(body);
  scope_ = outer;
  std::string made = std::exchange(out_, std::move(text_before));
  if (!flow.ok()) return flow.error();
  const Value value = TEGULA_TRY(text(std::move(made)));
  const Value* before = std::exchange(hole_, &value);
  auto filtered = evaluate(filters);
  hole_ = before;
  return filtered;
}

Status Evaluator::assign(const Node& target, const Value& value) {
  if (target.is(Is::kName)) {
    put_in(scope_->names, target.name, value);
    return {};
  }
  if (target.is(Is::kSpaceName)) {
    const Value space = look_up(target.name);
    const std::string& name = target.value.str();
    if (!space.is(Kind::kNamespace))
      return invalid_argument(cat("line ", target.line, ": ", target.name, ".", name,
                                  " cannot be set: ", target.name, " is no namespace"));
    if (name.starts_with('_'))
      return invalid_argument(cat("line ", target.line, ": a namespace's ", name,
                                  " cannot be set: it begins with '_'"));
    put_in(space.space->names, name, value);
    return {};
  }
  const std::vector<Value> items = TEGULA_TRY(iterate(value));
  if (items.size() != target.args.size())
    return invalid_argument(cat("line ", target.line, ": ", items.size(), " values for ",
                                target.args.size(), " names"));
  for (size_t i = 0; i < items.size(); ++i) TEGULA_TRY(assign(target.args[i], items[i]));
  return {};
}

Result<Evaluator::Flow> Evaluator::execute(const Node& n) {
  const Level level(depth_);
  if (!work.spend(1) || depth_ > kMostLevels)
    return invalid_argument(cat("line ", n.line, ": it does more than a template may"));
  auto flow = execute_at(n);
  if (flow.ok() || has_line_) return flow;
  Error e = std::move(flow).error();
  if (!e.message.starts_with("line ")) e.message = cat("line ", n.line, ": ", e.message);
  has_line_ = true;
  return e;
}

Result<Evaluator::Flow> Evaluator::execute_at(const Node& n) {
  switch (n.kind) {
    case Is::kBlock:
      for (const Node& each : n.args)
        if (const Flow flow = TEGULA_TRY(execute(each)); flow != Flow::kGoOn) return flow;
      return Flow::kGoOn;
    case Is::kData:
    case Is::kPrint:
      out_ += n.is(Is::kData) ? n.value.str()
                              : TEGULA_TRY(to_text(TEGULA_TRY(evaluate(n.args[0])), work));
      if (!work.spend(1) || out_.size() > work.most_bytes)
        return invalid_argument("it writes more than a template may");
      return Flow::kGoOn;
    case Is::kIf:
      for (size_t i = 0; i + 1 < n.args.size(); i += 2)
        if (TEGULA_TRY(evaluate(n.args[i])).is_true()) return execute(n.args[i + 1]);
      return n.args.size() % 2 == 1 ? execute(n.body()) : Flow::kGoOn;
    case Is::kFor:
      return execute_for(n);
    case Is::kSet:
      TEGULA_TRY(assign(n.args[0], TEGULA_TRY(evaluate(n.args[1]))));
      return Flow::kGoOn;
    case Is::kWrite:
      TEGULA_TRY(assign(n.args[0], TEGULA_TRY(captured(n.args[2], n.args[1]))));
      return Flow::kGoOn;
    case Is::kFilterBlock:
      out_ += TEGULA_TRY(to_text(TEGULA_TRY(captured(n.args[1], n.args[0])), work));
      return Flow::kGoOn;
    case Is::kMacro: {
      Value macro = Value::of(Kind::kMacro, n.name);
      macro.macro = &n, macro.scope = scope_;
      scope_->is_kept = true;
      put_in(scope_->names, n.name, std::move(macro));
      return Flow::kGoOn;
    }
    case Is::kCallBlock: {
      Value caller = Value::of(Kind::kMacro, "caller");
      caller.macro = &n.args[1], caller.scope = scope_;
      scope_->is_kept = true;
      const Value what = TEGULA_TRY(evaluate(n.args[0].args[0]));
      auto given = TEGULA_TRY(arguments(n.args[0]));
      caller_ = what.is(Kind::kMacro) ? &caller : nullptr;
      out_ += TEGULA_TRY(to_text(TEGULA_TRY(call(what, std::move(given))), work));
      return Flow::kGoOn;
    }
    case Is::kWith: {
      // Values are read outside.
      std::vector<Value> values;
      for (size_t i = 1; i < n.args.size(); i += 2)
        values.push_back(TEGULA_TRY(evaluate(n.args[i])));
      Scope* outer = std::exchange(scope_, new_scope(scope_));
      for (size_t i = 0; i < values.size(); ++i) TEGULA_TRY(assign(n.args[2 * i], values[i]));
      const Flow flow = TEGULA_TRY(execute(n.body()));
      scope_ = outer;
      return flow;
    }
    case Is::kBreak:
      return Flow::kBreak;
    case Is::kContinue:
      return Flow::kContinue;
    default:
      return internal_error("an expression is no statement");
  }
}

// Whether there is one more that the loop's condition accepts; it is behind those accepted before.
Result<bool> Evaluator::accept_next(Loop& loop) {
  const Node& test = loop.node->args[2];
  while (loop.n_seen < loop.given.size()) {
    Value next = loop.given[loop.n_seen++];
    bool is_accepted = true;
    if (!test.is(Is::kNothing)) {
      Scope* before = std::exchange(scope_, new_scope(loop.outer));
      TEGULA_TRY(assign(loop.node->args[0], next));
      is_accepted = TEGULA_TRY(evaluate(test)).is_true();
      scope_ = before;
    }
    if (!is_accepted) continue;
    loop.accepted.push_back(std::move(next));
    return true;
  }
  return false;
}

Result<Evaluator::Flow> Evaluator::execute_for(const Node& n) {
  loops_.push_back({&n, scope_, TEGULA_TRY(iterate(TEGULA_TRY(evaluate(n.args[1])))), {}});
  Loop& loop = loops_.back();
  Value its = Value::of(Kind::kLoop);
  its.loop = &loop;
  Scope* inner = nullptr;
  for (;; ++loop.index) {
    if (loop.index == static_cast<int64_t>(loop.accepted.size()) && !TEGULA_TRY(accept_next(loop)))
      break;
    if (inner == nullptr || inner->is_kept) inner = new_scope(loop.outer);
    inner->names.clear();
    scope_ = inner;
    scope_->names.emplace_back("loop", its);
    TEGULA_TRY(assign(n.args[0], loop.accepted[static_cast<size_t>(loop.index)]));
    const Flow flow = TEGULA_TRY(execute(n.args[3]));
    scope_ = loop.outer;
    if (flow == Flow::kBreak) return Flow::kGoOn;
  }
  if (loop.index > 0) return Flow::kGoOn;
  scope_ = new_scope(loop.outer);
  const Flow flow = TEGULA_TRY(execute(n.args[4]));
  scope_ = loop.outer;
  return flow;
}

Result<Value> Evaluator::loop_attribute(Loop& loop, const std::string& name) {
  const auto at = [&](int64_t i) { return loop.accepted[static_cast<size_t>(i)]; };
  const auto has_next = [&]() -> Result<bool> {
    if (loop.index + 1 < static_cast<int64_t>(loop.accepted.size())) return true;
    return accept_next(loop);
  };
  if (name == "index0") return Value(loop.index);
  if (name == "index") return Value(loop.index + 1);
  if (name == "first") return Value(loop.index == 0);
  if (name == "last") return Value(!TEGULA_TRY(has_next()));
  if (name == "depth" || name == "depth0") return Value(int64_t{name == "depth"});
  if (name == "previtem")
    return loop.index > 0 ? at(loop.index - 1) : Value::undefined("the item before the first");
  if (name == "nextitem")
    return TEGULA_TRY(has_next()) ? at(loop.index + 1)
                                  : Value::undefined("the item behind the last");
  if (name == "length" || name == "revindex" || name == "revindex0") {
    while (TEGULA_TRY(accept_next(loop))) {
    }
    const auto n = static_cast<int64_t>(loop.accepted.size());
    return Value(name == "length" ? n : n - loop.index - (name == "revindex0"));
  }
  return Value::undefined(cat("loop.", name));
}

Result<Value> Evaluator::call_loop(Loop& loop, const std::string& name, Arguments&& arguments) {
  if (!arguments.named.empty()) return invalid_argument(cat("loop.", name, " takes no names"));
  if (name == "cycle") {
    if (arguments.values.empty()) return invalid_argument("loop.cycle needs values");
    return arguments.values[static_cast<size_t>(loop.index) % arguments.values.size()];
  }
  Value now = Value::list(std::move(arguments.values), Kind::kTuple);
  const bool is_changed = !equals(loop.changed, now, work);
  loop.changed = std::move(now);
  return Value(is_changed);
}

}  // namespace tegula::jinja
