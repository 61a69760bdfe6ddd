// Derivatives of any part of a function, written into the same builder: reverse mode (pullback) and
// forward mode (pushforward). Both compose with themselves and each other in any order, because the
// rules emit ordinary nodes.
//
// Reverse mode gives J^T·ct for outputs y(x), one sweep whatever the number of inputs; forward mode
// J·t, one sweep whatever the number of outputs. [Griewank and Walther 2008, ch. 3]
//
// An op without the rule needed is replaced by its `decompose` and differentiated through that.
// Integer values and ops without any derivative are constants; an op whose float result depends on
// a differentiated float but which has no rule at all is an error that names it.
#pragma once

#include <span>
#include <vector>

#include "tegula/ir/builder.h"

namespace tegula {

// Gradients of Σ <cts[i], ys[i]> with respect to each x; an invalid Var where it does not depend on
// it. Invalid cts mean zero. Nodes emitted belong to Phase::kBackward. Errors go to the builder.
std::vector<Var> pullback(Builder& b, std::span<const Var> ys, std::span<const Var> cts,
                          std::span<const Var> xs);

// d loss / d xs for a scalar loss; zeros where loss does not depend on an x.
std::vector<Var> grad(Var loss, std::span<const Var> xs);

// Tangents of ys, given those of xs (invalid: zero). The rules are emitted after the ys' own nodes.
std::vector<Var> pushforward(Builder& b, std::span<const Var> ys, std::span<const Var> xs,
                             std::span<const Var> tangents);

// Copies the body of f into b with `args` for its parameters; returns its results.
std::vector<Var> inline_call(Builder& b, const Function& f, std::span<const Var> args);

// Function-level forms, added to the module:
//   vjp: (params…, ct of each float result…) -> (results…, gradient of each float param…)
//   jvp: (params…, tangent of each float param…) -> (results…, tangent of each float result…)
Result<FuncId> vjp_function(Module& module, FuncId f);
Result<FuncId> jvp_function(Module& module, FuncId f);

}  // namespace tegula
