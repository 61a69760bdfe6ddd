// Shared by passes of loops: each scan that such a pass finds work in is written anew.
#pragma once

#include <map>

#include "tegula/base/memory.h"
#include "tegula/ir/builder.h"
#include "tegula/ops/table.h"

namespace tegula {

// Loop(module, f, scan): bool has_work(), and void write(Rewriter&), which binds the scan's
// outputs.
template <class Loop>
Result<bool> rewrite_loops(Module& module, Function& f) {
  std::map<NodeId, std::unique_ptr<Loop>> found;
  for (NodeId n = 0; n < f.nodes.size(); ++n) {
    if (f.nodes[n].op != &scan_op) continue;
    auto loop = std::make_unique<Loop>(module, f, f.nodes[n]);
    if (loop->has_work()) found.emplace(n, std::move(loop));
  }
  if (found.empty()) return false;
  Rewriter rw(module, f);
  for (NodeId n = 0; n < f.nodes.size(); ++n) {
    if (const auto loop = found.find(n); loop != found.end())
      loop->second->write(rw);
    else
      rw.clone(f.nodes[n]);
  }
  f = TEGULA_TRY(rw.finish());
  return true;
}

}  // namespace tegula
