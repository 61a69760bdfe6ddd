// The graph as text, and back: to_text(parse(to_text(m))) == to_text(m), byte for byte.
//
//   symbol n <= 8
//
//   func 0 "step" {
//     param %0 input "x" f32[n,4]
//     param %1 state "w" f32[4,4] donated 1
//     %2 = dot(%0, %1) {dims = "m k, k n -> m n"} : f32[n,4]
//     %3 = fused(%2) {inner = 0, shape = (n,4)} regions [1] : f32[n,4] backward in "layers.3"
//     result "y" %3
//     result "w" %1
//   }
//
// Where a value lies on a mesh stands behind its type (ir/sharding.h), and the mesh first of all:
//
//   mesh dp=2,tp=2
//   …
//     %2 = dot(%0, %1) {dims = "m k, k n -> m n"} : f32[8,4] [dp:0, tp:+]
//
// dim 0 split by dp, a part of a sum over tp; "[]": all of it on every rank; nothing: not said.
//
// Attributes: true, 3, 1.5 (a point or an exponent makes a float; shortest form that reads back to
// the same bits), "text", f32, [1,2] (integers), (n+1,4) (dims). Values are numbered as they are
// defined: parameters, then nodes. "#" begins a comment. Source locations are not kept.
#pragma once

#include "tegula/ir/opdef.h"

namespace tegula {

std::string to_text(const Module& m);
// One function of the module, without its regions.
std::string to_text(const Module& m, const Function& f);

// Checks the form and every reference (values, ops, regions, symbols), not the types: verify()
// does. Errors: "3:14: expected a dtype, found \"f33\"".
Result<Module> module_from_text(std::string_view text);

}  // namespace tegula
