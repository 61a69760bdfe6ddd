// split: cuts a training step, differentiated whole, into the parts of a Program.
//
// A stage begins where the forward part first enters a scope of `cuts` ("layers.6"). Forward nodes
// belong to the stage of their scope, backward nodes to that of the node whose gradient they form;
// a tied weight's gradients meet where the weight is used first. What depends on weights alone, and
// views that are no smaller than what they are of, belong to no part: whoever reads them makes them
// anew, so that they are never kept between parts.
//
// Run in order, the parts give the bits of the whole step: nothing is computed in another way. With
// micro-batches (n > 1) gradients are summed in a chain, in state named as the step's results that
// hold them ("grad.w"): w's sum + gradient / n, and zero again after the update.
//
// Errors: a cut that no scope of the step has, or that is not behind the last one; a value that
// would have to flow back.
#pragma once

#include <string>

#include "tegula/passes/program.h"

namespace tegula {

struct SplitOptions {
  std::vector<std::string> cuts;  // stages − 1 of them, in order
  int n_micro_batches = 1;
  bool weight_gradients_apart = false;  // W as parts of their own
};

// `step` keeps phases and scopes on its nodes, as Builder and passes do; its results "grad.*" are
// the gradients, and are no results of the parts. The parts are added to the module.
Result<Program> split(Module& module, FuncId step, const SplitOptions& options);

// A step that is two functions already, as split() without cuts gives them and ranks share them
// (passes/partition.h): `micro_step` is cut into the parts of a micro-batch, and `update`, whose
// parts are of the stages of its scopes, into those behind them. Sums of gradients stay state of
// both.
Result<Program> split_stages(Module& module, FuncId micro_step, FuncId update,
                             const SplitOptions& options);

}  // namespace tegula
