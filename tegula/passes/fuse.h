// Puts every elementwise op and row reduction of f into `fused` nodes; merges them into groups or
// (merge = false) gives each a node of its own. Bodies that are alike are one function.
#pragma once

#include "tegula/passes/pass.h"

namespace tegula {

// sums_columns: sums over leading dims may end a group.
Result<bool> fuse_function(Module& module, Function& f, bool merge, bool sums_columns);

// Asks the target's kernel. The CPU's has no column outputs, and those of CUDA's have an order of
// their own.
inline bool sums_columns(const PassOptions& options) {
  return options.target->device == DeviceKind::kCuda && options.mode == Mode::kFast;
}

}  // namespace tegula
