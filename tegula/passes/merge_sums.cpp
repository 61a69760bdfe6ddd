// The counterpart of merge_products on the way back. Products that are added (the gradient of what
// q, k and v were made of) become one, with factors side by side along what is summed; and the
// products of those factors with one value (the gradients of the weights) become one, and slices:
//
//   Σ_j a_j·w_j = A·W,   x·a_j = slice_j of x·A,   A = [a_0, a_1, …],  W alike
//
// On a GPU, whose small products leave it idle and whose kernels write the a_j side by side. In
// Mode::kFast alone (sum_products does it by shards). Changes bits: an output is one chain, rounded
// once.
#include "tegula/passes/pass.h"
#include "tegula/passes/superopt/merge.h"

namespace tegula {

extern const PassDef merge_products_pass;

static Result<bool> run(Module& module, Function& f, const PassOptions& options) {
  if (options.mode != Mode::kFast || options.target->device != DeviceKind::kCuda) return false;
  static const superopt::Rule rule = superopt::named_rule("sum_of_products");
  if (!TEGULA_TRY(superopt::merge(module, f, rule))) return false;
  TEGULA_TRY(merge_products_pass.run(module, f, options));  // what is side by side now
  return true;
}

extern const PassDef merge_sums_pass = {
    .name = "merge_sums",
    .doc =
        "in mode fast on a GPU, products that are added are one, and so are their weights' "
        "gradients",
    .sums = "in mode fast products that are added are one chain, rounded once",
    .phase = PassPhase::kCombine,
    .needs = kIsUnfused,
    .run = run,
};

}  // namespace tegula
