// Programs over *kinds* of ops with symbolic sizes, and rules: pairs of programs.
//
// A kind is an op as the superoptimiser sees it: a name, operands, attributes that are polynomials
// of sizes, and a Form, which says each element of the result in elements of the operands. The
// prover composes forms, and evaluation runs them: there is one declaration of a kind, kinds_*.cpp.
//
// The text of a rule, one statement a line, "#" begins a comment:
//
//   rule products_of_one_value
//   sizes m k n1 n2              # integers ≥ 1
//   integers lo                  # any integers
//   scalars c                    # any numbers
//   functions f g                # opaque functions of numbers: f(x), g(x, y)
//   inputs x[m,k] a[k,n1] b[k,n2]
//   where lo >= 0                # one a line: a condition on sizes and integers
//   left concat(dot(x, a), dot(x, b), dim=1)
//   right dot(x, concat(a, b, dim=1))
//   proof                        # steps (prove.h) up to a line "end"
//   end
#pragma once

#include <map>

#include "tegula/passes/superopt/poly.h"

namespace tegula::superopt {

using Extents = std::vector<Poly>;  // a shape

// Attributes by name. Integers are constant polynomials; words stand in `words`.
struct KindAttrs {
  std::map<std::string, std::vector<Poly>, std::less<>> polys;
  std::map<std::string, std::string, std::less<>> words;
  bool operator==(const KindAttrs&) const = default;
  bool has(std::string_view name) const { return polys.contains(name) || words.contains(name); }
  // One polynomial, or `otherwise` where the attribute is absent.
  Poly poly(std::string_view name, const Poly& otherwise) const;
  std::vector<Poly> list(std::string_view name) const;
  // A list of constants; empty where it is absent.
  std::vector<int64_t> integers(std::string_view name) const;
};

// y[out] = [within the box of y] Σ over pieces, loops and reads, with
//   piece = coefficient · Σ_loops [guards] Π_reads operand[index].
// Indices of the result are the symbols out_index(0), out_index(1), …; loops have names of their
// own. Loops range over all integers: every value is 0 outside its box, so that reads bound them;
// `size` says how far evaluation has to go (0 … size − 1). With `function` the result is instead
// that function of the pieces, in order; "max" is the largest over pieces, loops and guards.
// `is_boxed`: the sum alone is not 0 outside the box of the result, which must be said.
struct Form {
  struct Loop {
    Symbol symbol;
    Poly size;
  };
  struct Read {
    int operand = 0;
    std::vector<Poly> index;
  };
  struct Piece {
    Poly coefficient = 1;
    std::vector<Loop> loops;
    std::vector<Guard> guards;
    std::vector<Read> reads;
  };
  Extents shape;
  std::vector<Piece> pieces;
  std::string function;
  bool is_boxed = false;
};
Symbol out_index(size_t dim);
Symbol loop_index(size_t n);

// A kind is asked with these.
struct KindCall {
  std::span<const Extents> in;
  const KindAttrs& attrs;
  const Extents& shape(size_t i) const { return in[i]; }
};
struct KindDef {
  std::string_view name;
  std::string_view attrs;  // the names it knows, by spaces
  Result<Form> (*form)(const KindCall&) = nullptr;
};
// Every kind: contraction, movement, reduction, elementwise. Elementwise ops that only the table of
// ops knows are opaque functions: form_of() makes their form from the declaration (is_elementwise).
std::span<const KindDef> all_kinds();
const KindDef* find_kind(std::string_view name);
// Errors name the kind and say what does not fit.
Result<Form> form_of(std::string_view kind, const KindCall& call);

struct Node {
  std::string kind;  // "input": a name of Graph::inputs; "function": words["name"]
  std::vector<int> in;
  KindAttrs attrs;
  Extents shape;
};
struct Input {
  std::string name;
  Extents shape;
};

// Nodes in order of definition; the first inputs.size() nodes are the inputs. Equal nodes are one.
struct Graph {
  std::vector<Input> inputs;
  std::vector<Node> nodes;
  void add_input(std::string name, Extents shape);
  // Infers the shape; returns the node, an old one if there is an equal one.
  Result<int> add(std::string kind, std::vector<int> in, KindAttrs attrs);
  // "concat(dot(x, a), dot(x, b), dim=1)"
  std::string text(int node) const;
};

struct Rule {
  std::string name;
  std::vector<Symbol> sizes, integers, scalars;
  std::vector<std::string> functions;
  std::vector<Guard> where;  // with "size − 1 ≥ 0" of every size, first
  Graph graph;
  int left = 0, right = 0;  // nodes
  std::vector<std::string> proof;
  bool has_proof = false;                    // which may have no steps
  std::map<std::string, std::string> notes;  // other lines "class …", "note …"
  std::string text() const;
};

// Errors: "rules.txt:12: rule NAME: …".
Result<std::vector<Rule>> parse_rules(std::string_view text, std::string_view file);

}  // namespace tegula::superopt
