// Puts every elementwise op and row reduction of f into `fused` nodes; merges them into groups or
// (merge = false) gives each a node of its own. Bodies that are alike are one function.
#pragma once

#include "tegula/passes/pass.h"

namespace tegula {

Result<bool> fuse_function(Module& module, Function& f, bool merge);

}  // namespace tegula
