// Removes nodes that no result depends on. A node of several outputs goes only as a whole.
#include "tegula/passes/edit.h"
#include "tegula/passes/pass.h"

namespace tegula {

static Result<bool> run(Module&, Function& f, const PassOptions&) { return remove_dead_nodes(f); }

extern const PassDef dce_pass = {
    .name = "dce",
    .doc = "removes nodes that no result depends on",
    .phase = PassPhase::kAny,
    .run = run,
};

}  // namespace tegula
