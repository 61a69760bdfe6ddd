// Runs a template's tree; filters, tests and methods are in files of their own.
//
// Scopes are Jinja's: loops, macros and blocks that capture have their own, `if` has none, and a
// macro sees where it was made. Loops with a condition look ahead as Jinja does.
#pragma once

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "tegula/text/template.h"
#include "tegula/text/template_tree.h"

namespace tegula::jinja {

struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<std::string, Value>> names;
  bool is_kept = false;  // a macro was made in it
};

struct Namespace {
  std::vector<std::pair<std::string, Value>> names;
};

struct Arguments {
  std::vector<Value> values;
  std::vector<std::pair<std::string, Value>> named;
};
// One value for each of the parameters, which blanks part; one that ends in '=' may be left out and
// is then kMissing. Error: others are given, or too many.
Result<std::vector<Value>> bind(std::string_view what, std::string_view parameters,
                                Arguments&& arguments);

class Evaluator {
 public:
  Evaluator(const Json& variables, const TemplateLimits& limits);
  Result<std::string> render(const Node& root);

  // For filters and methods. Their errors get the line of what called them.
  Work work;
  Result<std::vector<Value>> iterate(const Value& value);
  Result<Value> attribute(const Value& of, const std::string& name);  // x.name
  Result<Value> item(const Value& of, const Value& key);              // x[key]
  // By a path as filters have it: "function.name", 0; none: the value itself.
  Result<Value> by_path(Value of, const Value& path);
  Result<Value> filter(const std::string& name, Value of, Arguments&& arguments);
  Result<bool> test(const std::string& name, const Value& of, Arguments&& arguments);
  Result<Value> call_method(const Value& self, const std::string& name, Arguments&& arguments);
  Result<bool> contains(const Value& all, const Value& one);  // one in all
  // Error: of more bytes than a text may have.
  Result<Value> text(std::string text);

 private:
  enum class Flow : uint8_t { kGoOn, kBreak, kContinue };
  struct Level;
  Error undefined(const Value& value) const;
  Result<Value> evaluate(const Node& n);
  Result<Value> evaluate_at(const Node& n);
  Result<Value> unary(const Node& n);
  Result<Value> binary(const std::string& op, const Value& a, const Value& b);
  Result<Value> arithmetic(const std::string& op, const Value& a, const Value& b);
  Result<Value> repeat(const Value& of, int64_t times);
  Result<Value> comparison(const Node& n);
  Result<Value> slice(const Value& of, const Node& bounds);
  Result<Arguments> arguments(const Node& n);
  Result<Value> call(const Value& what, Arguments&& arguments);
  Result<Value> call_function(const std::string& name, Arguments&& arguments);
  Result<Value> call_macro(const Value& macro, Arguments&& arguments);
  Result<Value> call_loop(Loop& loop, const std::string& name, Arguments&& arguments);
  bool has_method(const Value& of, std::string_view name) const;
  Result<Value> loop_attribute(Loop& loop, const std::string& name);
  Value look_up(const std::string& name) const;

  Result<Flow> execute(const Node& n);
  Result<Flow> execute_at(const Node& n);
  Result<Flow> execute_for(const Node& n);
  Result<bool> accept_next(Loop& loop);
  Result<Value> captured(const Node& body, const Node& filters);
  Status assign(const Node& target, const Value& value);
  Scope* new_scope(Scope* parent);

  int64_t now_;
  int depth_ = 0;
  bool has_line_ = false;  // the error says where
  std::string out_;
  const Value* hole_ = nullptr;
  const Value* caller_ = nullptr;  // for the next macro
  std::deque<Scope> scopes_;       // what templates point to lives as long as they run
  std::deque<Loop> loops_;
  std::deque<Namespace> spaces_;
  Scope* scope_ = nullptr;
};

// A loop over what was given; those that its condition accepts are found as they are needed.
struct Loop {
  const Node* node = nullptr;
  Scope* outer = nullptr;
  std::vector<Value> given, accepted;
  size_t n_seen = 0;  // of what was given
  int64_t index = 0;  // of what was accepted
  Value changed;
};

}  // namespace tegula::jinja
