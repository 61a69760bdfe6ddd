// Rewritings that nobody wrote by hand: see superopt/search.h. Runs where --superopt asks for it.
#include "tegula/passes/superopt/search.h"

namespace tegula {

static Result<bool> run(Module& module, Function& f, const PassOptions& options) {
  if (options.superopt == nullptr || options.superopt->seconds <= 0 || options.is_region)
    return false;
  return superopt::superoptimise(module, f, options);
}

extern const PassDef superopt_pass = {
    .name = "superopt",
    .doc = "blocks rewritten by proven rules, where a search finds that faster",
    .sums = "in mode fast rules may sum in another order",
    .phase = PassPhase::kCanonicalise,
    .run = run,
};

}  // namespace tegula
