// Removes nodes that no result depends on. A node of several outputs goes only as a whole.
#include "tegula/passes/edit.h"
#include "tegula/passes/pass.h"

namespace tegula {

static Result<bool> run(Module&, Function& f, const PassOptions&) {
  Edit edit(f);
  std::vector<uint8_t> live(f.nodes.size(), 0);
  auto mark = [&](ValueId v) {
    if (f.values[v].node != kNone) live[f.values[v].node] = 1;
  };
  for (const Output& r : f.results) mark(r.value);
  for (NodeId n = static_cast<NodeId>(f.nodes.size()); n-- > 0;) {
    if (live[n]) {
      for (ValueId v : f.nodes[n].inputs) mark(v);
    } else {
      edit.drop(n);
    }
  }
  if (!edit.any()) return false;
  edit.apply();
  return true;
}

extern const PassDef dce_pass = {"dce", "removes nodes that no result depends on", run};

}  // namespace tegula
