// Scans that differ only in what they give become one that gives what all of them do: a loop and
// the same loop again for its gradient (ops/common/scan.cpp), which saves carries and may give more
// ys, run once. All run one body on the same operands: bits stay. Comes before bodies are
// rewritten, while one that gives more is still the other with more results.

#include "tegula/base/algorithm.h"
#include "tegula/ir/builder.h"
#include "tegula/ops/table.h"
#include "tegula/passes/edit.h"
#include "tegula/passes/pass.h"

namespace tegula {

namespace {

std::vector<int64_t> saves_of(const Node& n) {
  return n.attrs.get_or<std::vector<int64_t>>("saves", {});
}

// Last carries and ys.
uint32_t n_own(const Node& n) { return n.n_outputs - static_cast<uint32_t>(saves_of(n).size()); }

// Both bodies compute the same, and the results of one are the first ones of the other.
bool is_same_body(const Module& m, FuncId a, FuncId b) {
  if (a == b) return true;
  const Function &f = m[a], &g = m[b];
  const auto same_node = [](const Node& x, const Node& y) {
    return x.op == y.op && x.inputs == y.inputs && x.regions == y.regions && x.attrs == y.attrs &&
           x.first_output == y.first_output && x.n_outputs == y.n_outputs;
  };
  const auto same_type = [](const Value& x, const Value& y) { return x.type == y.type; };
  const auto same_value = [](const auto& x, const auto& y) { return x.value == y.value; };
  const auto n = static_cast<std::ptrdiff_t>(std::min(f.results.size(), g.results.size()));
  return std::equal(f.params.begin(), f.params.end(), g.params.begin(), g.params.end(),
                    same_value) &&
         std::equal(f.values.begin(), f.values.end(), g.values.begin(), g.values.end(),
                    same_type) &&
         std::equal(f.nodes.begin(), f.nodes.end(), g.nodes.begin(), g.nodes.end(), same_node) &&
         std::equal(f.results.begin(), f.results.begin() + n, g.results.begin(), same_value);
}

bool is_same_loop(const Module& m, const Node& a, const Node& b) {
  if (a.inputs != b.inputs) return false;
  Attrs of_a = a.attrs, of_b = b.attrs;
  of_a.erase("saves"), of_b.erase("saves");
  return of_a == of_b && is_same_body(m, a.regions[0], b.regions[0]);
}

// The scans of each loop that is there more than once, loops in the order of their first scan.
std::vector<std::vector<NodeId>> repeated_loops(const Module& m, const Function& f) {
  std::vector<std::vector<NodeId>> loops;
  for (NodeId n = 0; n < f.nodes.size(); ++n) {
    if (f.nodes[n].op != &scan_op) continue;
    const auto known = std::find_if(loops.begin(), loops.end(), [&](const auto& loop) {
      return std::all_of(loop.begin(), loop.end(),
                         [&](NodeId other) { return is_same_loop(m, f.nodes[other], f.nodes[n]); });
    });
    known == loops.end() ? loops.push_back({n}) : known->push_back(n);
  }
  std::erase_if(loops, [](const auto& loop) { return loop.size() == 1; });
  return loops;
}

// One scan that stands where the first stood.
void merge(Builder& b, Edit& edit, const std::vector<NodeId>& loop) {
  Function& f = b.function();
  const NodeId longest = *std::max_element(loop.begin(), loop.end(), [&](NodeId x, NodeId y) {
    return n_own(f.nodes[x]) < n_own(f.nodes[y]);
  });
  Node joined = f.nodes[longest];
  const size_t n_first = n_own(joined);
  std::vector<int64_t> saves = saves_of(joined);
  std::vector<Type> types = f.output_types(joined);
  for (NodeId n : loop) {
    const std::vector<int64_t> more = saves_of(f.nodes[n]);
    for (uint32_t i = 0; i < more.size(); ++i)
      if (std::find(saves.begin(), saves.end(), more[i]) == saves.end()) {
        saves.push_back(more[i]);
        types.push_back(f.type(f.nodes[n].output(n_own(f.nodes[n]) + i)));
      }
  }
  joined.phase = f.nodes[loop[0]].phase;
  joined.attrs.set("saves", saves);
  std::vector<ValueId> inputs = joined.inputs;
  const ValueId first = b.append(std::move(joined), std::move(inputs), types);
  edit.put_before(loop[0]);
  for (NodeId n : loop) {
    const std::vector<int64_t> own = saves_of(f.nodes[n]);
    for (uint32_t i = 0; i < f.nodes[n].n_outputs; ++i) {
      size_t at = i;
      if (i >= n_own(f.nodes[n])) {
        const auto saved = std::find(saves.begin(), saves.end(), own[i - n_own(f.nodes[n])]);
        at = n_first + static_cast<size_t>(saved - saves.begin());
      }
      edit.replace(f.nodes[n].output(i), first + static_cast<ValueId>(at));
    }
    edit.drop(n);
  }
}

Result<bool> run(Module& module, Function& f, const PassOptions&) {
  const auto loops = repeated_loops(module, f);
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

extern const PassDef merge_scans_pass = {
    .name = "merge_scans",
    .doc = "scans that differ in what they give become one",
    .phase = PassPhase::kLoops,
    .run = run,
};

}  // namespace tegula
