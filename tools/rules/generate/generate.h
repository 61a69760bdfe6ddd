// Finds rules: enumerates programs of up to four ops and three inputs over the kinds, takes pairs
// of equal fingerprints for candidates, prunes what other rules imply, and proves what is left.
//   Source: TASO, Jia et al. 2019, §3; the pruning of programs that contain the longer side of an
//   earlier pair is Ruler's, Nandi et al. 2021, §3.
#pragma once

#include "tegula/base/memory.h"
#include "tegula/passes/superopt/rule_set.h"
#include "tools/rules/prove/evaluate.h"
#include "tools/rules/prove/prove.h"

namespace tegula::superopt {

// A family of inputs with sizes: programs of one world share its inputs.
struct World {
  std::string_view header;   // "sizes m k n", "inputs x[m,k] a[k,n]", …: as in a rule
  std::string_view extents;  // "m=2 k=3 n=4": where programs are evaluated; all differ
  std::string_view kinds;    // that its programs are made of
  int most_ops = 4;
};
std::span<const World> all_worlds();

// A kind that can be applied next to values of given shapes: a kind with attributes.
struct Choice {
  std::string kind;
  KindAttrs attrs;
  bool is_commutative = false;
};
// With one operand, or two; `known` are shapes that the world has so far.
std::vector<Choice> choices(const World& world, const Extents& x, std::span<const Extents> known);
std::vector<Choice> choices(const World& world, const Extents& x, const Extents& y);

struct Counts {
  int64_t graphs = 0;      // programs that were evaluated
  int64_t candidates = 0;  // pairs of equal fingerprints
  int64_t survivors = 0;   // of these, what no rule before implies
  int64_t proven = 0;      // of these
  double generate_ms = 0, prove_ms = 0;
  std::string text() const;
};
struct Generated {
  std::vector<Rule> rules;  // with proofs
  Counts counts;
  std::string text() const;  // of all rules
};
Generated generate_rules(int n_threads);

// Rules as rewrites, either way, for asking whether a program can be made smaller by them.
class Rewrites {
 public:
  void add(Rule rule);
  std::span<const Rule> rules() const { return rules_; }
  // Whether one of them, at any node of `root`, gives `other`, or a program of fewer ops or an
  // earlier text: then what else equals `root` is implied by it and by rules of smaller programs.
  bool imply(Graph& graph, int root, int other, std::span<const Guard> facts) const;

 private:
  std::vector<Rule> rules_;
  std::map<std::string, std::vector<std::pair<size_t, bool>>, std::less<>> by_head_;  // from left?
};

// "exact": both sides make each element by the same operations on the same elements, moved at most,
// so that bits stay where the kernels keep their orders. "fast": equal over a field, by other sums
// or products, or by zeros more, which differ at inf and NaN.
std::string class_of(const Rule& rule);

FieldTensor random_tensor(std::vector<int64_t> shape, uint64_t seed);

// Looks for sizes within the rule's conditions at which both sides differ: random small sizes,
// `tries` of them. False says nothing.
bool is_refuted(const Rule& rule, int tries, uint64_t seed);

// The rules of a file with proofs and classes, as text: what brings no proof is proven. Errors name
// the file's first rule that is not proven, with a condition under which it would be, or whose
// class is not what it says.
struct ProvenFile {
  std::string text;
  size_t n_rules = 0, n_exact = 0;
};
Result<ProvenFile> prove_file(std::string_view text, std::string_view file);

// The rules of a file for the search, behind those in the tool: either way, where one side can
// stand for the other. Errors name the file's first rule that has no proof, its first wrong step,
// or a class that is not what it says.
Result<std::shared_ptr<const RuleSet>> read_rules(std::string_view text, std::string_view file);

}  // namespace tegula::superopt
