// The values of chat templates: Python's, as Jinja sees them.
//
// Lists, tuples and dicts are shared and never change once made, as in Jinja's immutable sandbox;
// dicts keep their order and are looked up in linear time. Integers have 64 bits. What a filter
// like `select` gives is read once (kOnce), and what `items()` and `range` give is a view.
// A value is at most kMaxDepth levels deep. Texts are UTF-8, counted in code points.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tegula/base/memory.h"
#include "tegula/base/result.h"

namespace tegula {
class Json;
}

namespace tegula::jinja {

inline constexpr int kMaxDepth = 200;  // of values, trees and calls

// How much a template may still do: steps, and the bytes of any text that it makes.
struct Work {
  int64_t steps = 10'000'000;
  size_t most_bytes = size_t{64} << 20;
  // False: no more.
  bool spend(size_t n) {
    steps -= static_cast<int64_t>(n);
    return steps >= 0;
  }
  bool spend_text(size_t bytes) {
    if (bytes > most_bytes) steps = -1;
    return spend(bytes / 64 + 1);
  }
};

struct Node;
struct Scope;
struct Loop;
struct Namespace;

struct Value {
  enum class Kind : uint8_t {
    kUndefined,  // `text` is its name
    kMissing,    // an argument that was not given
    kNone,
    kBool,
    kInt,
    kFloat,
    kText,
    kList,
    kTuple,
    kDict,  // `items` are keys and values in turn
    kView,  // `text` is its name in Python
    kOnce,
    kNamespace,
    kLoop,
    kMethod,    // `text` of items[0]
    kFunction,  // of this name
    kMacro
  };
  Kind kind = Kind::kUndefined;
  bool is_safe = false;  // of a text: Markup, what it is joined with is escaped
  int depth = 0;
  int64_t integer = 0;
  double real = 0;
  std::shared_ptr<const std::string> text;
  std::shared_ptr<std::vector<Value>> items;
  union {
    Namespace* space = nullptr;
    Loop* loop;
    const Node* macro;
  };
  Scope* scope = nullptr;  // where the macro was made

  Value() = default;
  Value(bool x) : kind(Kind::kBool), integer(x) {}
  Value(int64_t x) : kind(Kind::kInt), integer(x) {}
  Value(double x) : kind(Kind::kFloat), real(x) {}
  Value(std::string x)
      : kind(Kind::kText), text(std::make_shared<const std::string>(std::move(x))) {}
  Value(const char* x) : Value(std::string(x)) {}
  static Value of(Kind kind, std::string name = "");
  static Value none() { return of(Kind::kNone); }
  static Value undefined(std::string_view name) { return of(Kind::kUndefined, std::string(name)); }
  static Value list(std::vector<Value> items, Kind kind = Kind::kList);
  static Value from(const Json& json);

  bool is(Kind k) const { return kind == k; }
  bool is_defined() const { return kind != Kind::kUndefined; }
  bool is_integer() const { return kind == Kind::kInt || kind == Kind::kBool; }
  bool is_number() const { return is_integer() || kind == Kind::kFloat; }
  bool is_sequence() const { return kind == Kind::kList || kind == Kind::kTuple; }
  double number() const { return kind == Kind::kFloat ? real : static_cast<double>(integer); }
  const std::string& str() const { return *text; }  // of a text
  bool is_true() const;
  // A dict's entry; null pointer: it has none.
  const Value* find(const Value& key, Work& work) const;
  const char* type_name() const;  // Python's
};

bool equals(const Value& a, const Value& b, Work& work);
// -1, 0, 1, as Python orders. Error: it does not.
Result<int> compare(const Value& a, const Value& b, Work& work);
// str(x) and repr(x). Error: of what Jinja has no text that is the same twice.
Result<std::string> to_text(const Value& value, Work& work);
Result<std::string> to_repr(const Value& value, Work& work);

// json.dumps with its options; `indent` null: one line.
struct JsonStyle {
  const std::string* indent = nullptr;
  std::string comma = ", ", colon = ": ";
  bool ascii = false, sorts = false;
};
Result<std::string> to_json_text(const Value& value, const JsonStyle& style, Work& work);

// str.isspace of a character, and str.strip: of white space, or of the characters of `of`.
bool is_space(char32_t c);
std::string_view strip(std::string_view text, bool left, bool right,
                       const std::u32string* of = nullptr);
// str.upper and str.lower. Error: letters whose other case is not one letter.
Result<std::string> upper(std::string_view text);
Result<std::string> lower(std::string_view text);
// The first letter upper, the rest lower; as title: of each word of letters.
Result<std::string> capitalize(std::string_view text, bool each_word);

}  // namespace tegula::jinja
