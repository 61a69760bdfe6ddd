// A program denotes for every index of its result, a sum of guarded products of inputs'
// elements.
//
//   y[i0, i1, …] = Σ_terms coefficient · Σ_bound [guards] Π factors
//
// A factor is an element of an input at an index, or an opaque function of denotations. Inputs are
// 0 outside their boxes, and so is every program; bound variables range over all integers. A slice,
// a pad and a concatenation are then mere shifts and guards, and a product of sums multiplies out,
// so that two programs are equal where their sums are: prove.h decides that by cases.
#pragma once

#include "tegula/passes/superopt/program.h"

namespace tegula::superopt {

struct Term;
using Value = std::vector<Term>;  // a sum; empty: 0

// An operand of an opaque function: a sum, or for "max" the sums at all places of a domain.
struct Branch;

struct Factor {
  std::string name;              // of the input, or of the function
  std::vector<Poly> index;       // input: one a dim
  std::vector<Branch> branches;  // function: its operands; empty for an input
  bool is_input() const { return branches.empty(); }
};

struct Term {
  Poly coefficient = 1;
  std::vector<Symbol> bound;
  std::vector<Guard> guards;
  std::vector<Factor> factors;
};

struct Branch {
  std::vector<Symbol> bound;  // the domain's loops and guards; both empty but for "max"
  std::vector<Guard> guards;
  Value value;
};

// The index i0, i1, … of the result.
Symbol result_index(size_t dim);

// Denotes a node at the given index. Bound variables are r<n>, numbered from `next` in the order of
// the recursion: a piece's loops when it is entered, then its reads from left to right, each for
// all terms at once. That order, and that of terms (pieces in order, products row-major), is part
// of the form of a proof: the checker denotes in the same order with code of its own.
Value denote(const Graph& graph, int node, std::span<const Poly> index, int64_t& next);
Value denote(const Graph& graph, int node);

// How many terms it has with all that stands within functions, before any is made: sums of sums may
// be too many.
double n_terms(const Graph& graph, int node);

// Where this node and what it is made of are valid ops: slices lie within, extents are at least 1.
std::vector<Guard> conditions(const Graph& graph, int node);

// The facts that hold where a term is not 0: its guards, then 0 ≤ index and index ≤ extent − 1 for
// each dim of each input among its factors, in order.
void append_facts(const Term& term, const Graph& graph, std::vector<Guard>& facts);

void substitute(Term& term, Symbol symbol, const Poly& by);
void substitute(Branch& branch, Symbol symbol, const Poly& by);
std::string text_of(const Term& term);
std::string text_of(const Factor& factor);

}  // namespace tegula::superopt
