// Where in a function a rule's left side stands, and the function with its right side there
// instead.
//
// Sizes, integers and functions of the rule are bound by unification: a bare symbol takes what
// stands there, a polynomial with one symbol yet unknown is solved for it, and all others are
// checked at the end, with the rule's conditions. A left side that is a concatenation also stands
// where its operands do without being concatenated: each then becomes a slice of the right side,
// which the rule makes equal. So "concat(dot(x, a), dot(x, b)) = dot(x, concat(a, b))" merges two
// products of one value.
#pragma once

#include <set>

#include "tegula/passes/superopt/bridge.h"

namespace tegula::superopt {

struct Match {
  std::vector<ValueId> roots;  // ascending; of one: the left side itself
  bool is_split = false;       // roots are the concatenation's operands
  std::vector<std::pair<Symbol, Poly>> symbols;
  std::map<std::string, ValueId> inputs;
  std::map<std::string, KindOfNode> functions;
  std::map<std::string, Attrs> rest;  // of dot and conv
  std::string key() const;            // alike matches have one: sizes and functions
};

// What a function's nodes are to rules, looked at once for all of them.
struct Kinds {
  explicit Kinds(const Function& f);
  std::vector<std::optional<KindOfNode>> of;            // by node
  std::set<std::pair<std::string, std::string>> pairs;  // a node's kind and an operand's; "": any
};

// In the order of the first root; at most so many.
std::vector<Match> find_matches(const Module& module, const Function& f, const Kinds& kinds,
                                const Rule& rule, size_t most = 64);
std::vector<Match> find_matches(const Module& module, const Function& f, const Rule& rule,
                                size_t most = 64);

// The function with the right side, dead nodes removed. None: an operand of the right side depends
// on what it would replace, or no op can say it.
std::optional<Function> apply(Module& module, const Function& f, const Rule& rule, const Match& m);

}  // namespace tegula::superopt
