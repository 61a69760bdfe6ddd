// Programs that are right in part, and their correction. [Wang et al. 2021, PET]
//
// At constant sizes both sides of a rule are cut into boxes of their result within which every
// guard and every bound of a sum is decided alike and every read moves with the index: there a
// program of products and sums is one polynomial of inputs that shifts along, so that two programs
// which agree at a corner and one step along each dim agree throughout the box (PET, theorem 2):
// rank + 1 positions a box, whatever its size. Values are of random inputs modulo 2^61 − 1. The
// correction computes the left side on wrong boxes alone, from slices of the inputs.
#pragma once

#include "tegula/ir/module.h"
#include "tools/rules/prove/evaluate.h"

namespace tegula::superopt {

struct Box {
  std::vector<int64_t> lo, hi;  // lo ≤ index < hi
  int64_t n_elements() const;
};

struct Partial {
  std::vector<int64_t> shape;
  std::vector<Box> wrong;  // apart from one another, merged along dims where that is possible
  int64_t n_boxes = 0;     // that were looked at
  int64_t positions_tested = 0;
};
// Errors: sides of different shapes; a kind that is no sum of products; too many boxes; sizes
// past 2^30, values past 2^40 elements.
Result<Partial> compare(const Rule& rule, const Assignment& at, uint64_t seed = 1);

// The rule at these sizes whose right side has the wrong boxes replaced by the left side's.
Result<Rule> correct(const Rule& rule, const Assignment& at, std::span<const Box> wrong);
// Other programs over the inputs of `program.left` that are right in part at these sizes or at
// smaller ones, the most right first, at most 16: of up to three of its ops and layouts, which lay
// a dim into another (a batch's images beside one another, an image's rows as one row), and at last
// the layout of the result. Errors: no small sizes fit its conditions; evaluate()'s.
struct Mutants {
  std::vector<Rule> rules;  // NAME_1, …: left is the program
  int64_t n_programs = 0;   // that were looked at
};
Result<Mutants> mutants_of(const Rule& program, const Assignment& at);
// The rules of a file that have a left side alone, which becomes their right one, too.
Result<std::vector<Rule>> programs_of(std::string_view text, std::string_view file);

// A side of a rule at constant sizes as the function of a module, with parameters of f32 and the
// result y. Errors: a symbol; a kind that is no op; what an op refuses.
Result<Module> graph_of(const Rule& rule, int side);
// The rule's symbols as "n=2" says them, its scalars at random. Errors: one that is missing, or is
// no number; sizes that break the rule's conditions.
Result<Assignment> sizes_of(std::span<const std::string> given, const Rule& rule);
// Errors: a name that no rule has.
Status check_sizes(std::span<const std::string> given, std::span<const Rule> rules,
                   std::string_view file);
// Multiply-adds of a node and all it is made of, up to 9·10^18.
int64_t work_of(const Graph& graph, int node, const Assignment& at);

}  // namespace tegula::superopt
