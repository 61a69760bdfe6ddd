// Between nodes of an ir function and the prover's kinds: what a node is as a call of a kind, and a
// call of a kind as nodes.
//
// An op whose name is a kind's is that kind; max_pool is pool_max; every other elementwise op is an
// opaque function of its name, attributes and all. What a kind does not know of a node (a dot's
// shards) is its `rest`, which a rule keeps. Sizes that are not known before a run are symbols of
// the module: Poly and Dim say the same of them.
#pragma once

#include <optional>

#include "tegula/ir/builder.h"
#include "tegula/passes/superopt/program.h"

namespace tegula::superopt {

struct KindOfNode {
  std::string kind;  // "function": an opaque one, words["name"]
  KindAttrs attrs;
  Attrs rest;
};
// The op that is the kind; null: none.
const OpDef* op_of(std::string_view kind);
// None: no kind says what the node computes.
std::optional<KindOfNode> kind_of(const Function& f, const tegula::Node& n);

Poly poly_of(const Dim& d);
Extents extents_of(const Shape& s);
// None: no one dim of the module says this.
std::optional<Dim> dim_of_poly(const Module& module, const Poly& p);

// Adds what computes the call; the attributes hold no symbols but the module's. Concatenations of
// concatenations along one dim become one. Errors: an attribute or extent that ops cannot say.
Result<Var> emit_kind(Builder& b, const KindOfNode& call, std::span<const Var> in,
                      const Type& like);

}  // namespace tegula::superopt
