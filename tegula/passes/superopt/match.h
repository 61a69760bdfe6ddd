// Where in a function a rule's left side stands, and the function with its right side there
// instead.
//
// Sizes, integers and functions of the rule are bound by unification: a bare symbol takes what
// stands there, a polynomial with one symbol yet unknown is solved for it, and all others are
// checked at the end, with the rule's conditions. A left side that is a concatenation also stands
// where its operands do without being concatenated: each then becomes a slice of the right side,
// which the rule makes equal. So "concat(dot(x, a), dot(x, b)) = dot(x, concat(a, b))" merges two
// products of one value.
//
// A rule's product stands for all that have its factors, in any order of dims: "m k, k n -> m n"
// also for "b s k, n k -> b s n", where m is b and s in a row, and for one of them with a batch.
// Where a rule does not keep the order of sums, it does not see casts between floats, either: what
// was rounded on the way is then rounded at the end.
#pragma once

#include <set>

#include "tegula/passes/superopt/bridge.h"

namespace tegula::superopt {

// For each dim of the rule's tensor those of the function's that it stands for, in a row, and last
// the batch's. Empty: dim for dim.
using View = std::vector<std::vector<int>>;

struct Bound {
  ValueId value = kNone;
  View view;
};

struct Match {
  std::vector<ValueId> roots;  // of one: the left side itself
  View view;                   // of each root
  bool is_split = false;       // roots are the concatenation's operands
  std::vector<std::pair<Symbol, Poly>> symbols;
  std::map<std::string, Bound> inputs;
  std::map<std::string, KindOfNode> functions;
  // Attributes of conv and dot that kinds do not know, and a dot's dims. By kind and the rule's
  // dims.
  std::map<std::string, Attrs> rest;
  // For merge(): inputs of the parts behind the second, concatenations of the right side, by their
  // node, that the function has, and nodes that nothing else reads.
  std::vector<std::map<std::string, ValueId>> more;
  std::map<int, ValueId> there;
  std::vector<NodeId> inner;
  std::string key() const;  // alike matches have one: sizes and functions
};

// A function's nodes as rules see them, looked at once for all rules.
struct Kinds {
  explicit Kinds(const Function& f);
  std::vector<std::optional<KindOfNode>> of;  // by node
  // A node's kind and an operand's, also behind casts; "": any.
  std::set<std::pair<std::string, std::string>> pairs;
};

// In the order of the first root, which is the first of them; at most so many.
std::vector<Match> find_matches(const Module& module, const Function& f, const Kinds& kinds,
                                const Rule& rule, size_t most = 64);
std::vector<Match> find_matches(const Module& module, const Function& f, const Rule& rule,
                                size_t most = 64);

// The function with the right side, dead nodes removed. None: an operand of the right side depends
// on what it would replace, or no op can say it.
std::optional<Function> apply(Module& module, const Function& f, const Rule& rule, const Match& m);
// The same of several that share no node, in f itself; false: f stays as it is. Error: an op
// refuses its operands; f is undefined then.
Result<bool> apply_all(Module& module, Function& f, const Rule& rule, std::span<const Match> all);

}  // namespace tegula::superopt
