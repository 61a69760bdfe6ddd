// Gives every elementwise op and row reduction that stands alone a `fused` node of its own: there
// is one kernel for all of them, so fused and unfused programs have the same bits.
#include "tegula/passes/fuse.h"

namespace tegula {

static Result<bool> run(Module& module, Function& f, const PassOptions&) {
  return fuse_function(module, f, false, false);
}

extern const PassDef wrap_pass = {
    .name = "wrap",
    .doc = "gives elementwise ops and row reductions that stand alone a fused node each",
    .sums = "without it lone ops run their references: one chain, the C library's functions",
    .phase = PassPhase::kFuse,
    .needs = kIsGrouped,
    .run = run,
};

}  // namespace tegula
