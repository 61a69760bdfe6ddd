// Whether a rewritten graph forms each of its sums as the graph before did, with the kernels that
// both get on the target: then bits stay.
//
// Two things are looked at. Before the passes, elements of the results are followed down to
// parameters: what is only moved is followed through, a sum is its length, its attributes and terms
// of it in their order, everything else is opaque. So a sum that takes other elements, zeros more
// or another order is seen whatever made it. After the passes, every node that sums is listed with
// its length, its dtypes and the numeric order that its kernel declares; both lists must agree.
//
// Elements and terms are samples, some dozens whatever the sizes: rules are proven for all
// elements, this decides their order. Symbols count at their bounds.
#pragma once

#include <map>
#include <string>

#include "tegula/passes/pass.h"

namespace tegula::superopt {

// By "dot of 512 f32, bf16": by order, of how many elements of results.
using Sums = std::map<std::string, std::map<std::string, int64_t>>;
// Those of a function that has been through the passes, and of its regions. An order is empty where
// a kernel declares none.
Sums sums_of(const Module& module, const Function& f, const Planning& asked);

// The first difference of two lists; "": none, and every order is declared. Where one sum is done
// in several orders, each must be done as often as before.
std::string difference(const Sums& before, const Sums& after);

// Where functions 0 of two modules take other elements, or sum them otherwise: "result 1, element
// 5"; "": nowhere. Parameters are the same by their numbers.
std::string difference(const Module& before, const Module& after);

}  // namespace tegula::superopt
