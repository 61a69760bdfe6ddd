// A chat template as a tree.
#pragma once

#include <string>
#include <vector>

#include "tegula/text/template_value.h"

namespace tegula::jinja {

// Each kind's parts are `args`, in this order; a part that was left out is kNothing.
struct Node {
  enum class Kind : uint8_t {
    kNothing,
    kHole,       // where a filter of a block has its text
    kConst,      // `value`
    kName,       // `name`
    kAttribute,  // of args[0], `name`
    kItem,       // args[0][args[1]]
    kSlice,      // from, to, step; inside of kItem
    kCall,       // what is called, its arguments
    kKeyword,    // an argument args[0] with a `name`
    kFilter,     // args[0] | name(arguments)
    kTest,       // args[0] is name(arguments)
    kUnary,      // name: - + not
    kBinary,     // name: + - * / // % **
    kAnd,
    kOr,
    kCompare,  // args[0], and kOperand of `name` and args[0], several
    kOperand,
    kConcat,
    kChoice,  // the condition, what is then, and else
    kList,
    kTuple,
    kDict,       // keys and values in turn
    kSpaceName,  // name.value, of a namespace that is set
    kBlock,      // statements
    kData,       // `value`
    kPrint,
    kFor,          // target, of what, condition, body, else
    kIf,           // conditions and bodies in turn, at last the body of else
    kSet,          // target, value
    kWrite,        // target, filters, body: {% set x %}…{% endset %}
    kWith,         // targets and values in turn, at last the body
    kMacro,        // `name`, parameters as kKeyword with their defaults, at last the body
    kCallBlock,    // the call, and a kMacro
    kFilterBlock,  // filters, body
    kBreak,
    kContinue
  };
  Kind kind = Kind::kNothing;
  int line = 0, depth = 0;
  std::string name;
  Value value;
  std::vector<Node> args;

  bool is(Kind k) const { return kind == k; }
  const Node& body() const { return args.back(); }
};

// Errors: kInvalidArgument for what is no Jinja, kUnsupported for Jinja that is not computed;
// both name it and its line.
Result<Node> parse_template(std::string_view source);

}  // namespace tegula::jinja
