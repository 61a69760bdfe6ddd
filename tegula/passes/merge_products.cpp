// Products of one value with several weights (q, k and v; gate and up) become one product with the
// weights side by side, and slices of it: a rule's left side, where that moves fewer bytes.
// [TASO, Jia et al. 2019, figure 1]
#include "tegula/passes/pass.h"
#include "tegula/passes/superopt/merge.h"

namespace tegula {

static Result<bool> run(Module& module, Function& f, const PassOptions&) {
  static const superopt::Rule rule = superopt::named_rule("products_of_one_value");
  return superopt::merge(module, f, rule);
}

extern const PassDef merge_products_pass = {
    .name = "merge_products",
    .doc = "dots that share an operand become one with the weights side by side",
    .phase = PassPhase::kCombine,
    .needs = kIsUnfused,
    .run = run,
};

}  // namespace tegula
