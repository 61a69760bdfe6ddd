// Scans that differ only in the carries they save become one that saves what all of them do: a loop
// and the same loop again for its gradient (ops/common/scan.cpp) run once. Both run one body on the
// same operands: bits stay.
#include <algorithm>

#include "tegula/ir/builder.h"
#include "tegula/ops/table.h"
#include "tegula/passes/edit.h"
#include "tegula/passes/pass.h"

namespace tegula {

namespace {

std::vector<int64_t> saves_of(const Node& n) {
  return n.attrs.get_or<std::vector<int64_t>>("saves", {});
}

bool is_same_loop(const Node& a, const Node& b) {
  if (a.inputs != b.inputs || a.regions != b.regions) return false;
  Attrs of_a = a.attrs, of_b = b.attrs;
  of_a.erase("saves"), of_b.erase("saves");
  return of_a == of_b;
}

// The scans of each loop that is there more than once, loops in the order of their first scan.
std::vector<std::vector<NodeId>> repeated_loops(const Function& f) {
  std::vector<std::vector<NodeId>> loops;
  for (NodeId n = 0; n < f.nodes.size(); ++n) {
    if (f.nodes[n].op != &scan_op) continue;
    const auto known = std::find_if(loops.begin(), loops.end(), [&](const auto& loop) {
      return is_same_loop(f.nodes[loop[0]], f.nodes[n]);
    });
    known == loops.end() ? loops.push_back({n}) : known->push_back(n);
  }
  std::erase_if(loops, [](const auto& loop) { return loop.size() == 1; });
  return loops;
}

// One scan that stands where the first stood.
void merge(Builder& b, Edit& edit, const std::vector<NodeId>& loop) {
  Function& f = b.function();
  Node joined = f.nodes[loop[0]];
  std::vector<int64_t> saves = saves_of(joined);
  const size_t n_own = joined.n_outputs - saves.size();  // last carries and ys
  std::vector<Type> types = f.output_types(joined);
  for (NodeId n : loop) {
    const std::vector<int64_t> more = saves_of(f.nodes[n]);
    for (uint32_t i = 0; i < more.size(); ++i)
      if (std::find(saves.begin(), saves.end(), more[i]) == saves.end()) {
        saves.push_back(more[i]);
        types.push_back(f.type(f.nodes[n].output(static_cast<uint32_t>(n_own) + i)));
      }
  }
  joined.attrs.set("saves", saves);
  std::vector<ValueId> inputs = joined.inputs;
  const ValueId first = b.append(std::move(joined), std::move(inputs), types);
  edit.put_before(loop[0]);
  for (NodeId n : loop) {
    const std::vector<int64_t> own = saves_of(f.nodes[n]);
    for (uint32_t i = 0; i < f.nodes[n].n_outputs; ++i) {
      size_t at = i;
      if (i >= n_own) {
        const auto saved = std::find(saves.begin(), saves.end(), own[i - n_own]);
        at = n_own + static_cast<size_t>(saved - saves.begin());
      }
      edit.replace(f.nodes[n].output(i), first + static_cast<ValueId>(at));
    }
    edit.drop(n);
  }
}

Result<bool> run(Module& module, Function& f, const PassOptions&) {
  const auto loops = repeated_loops(f);
  if (loops.empty()) return false;
  Builder builder(module, "");
  std::swap(builder.function(), f);
  Edit edit(builder.function());
  for (const auto& loop : loops) merge(builder, edit, loop);
  edit.apply();
  std::swap(builder.function(), f);
  return true;
}

}  // namespace

extern const PassDef merge_scans_pass = {"merge_scans",
                                         "scans that differ in what they save become one", run};

}  // namespace tegula
