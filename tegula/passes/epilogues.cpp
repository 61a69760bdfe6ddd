// An elementwise group that reads a dot's result becomes the dot's epilogue (op `dot_fused`), where
// a kernel takes finished tiles through it while the next ones are multiplied: what the dot made is
// then not read again, and not even written unless others read it too.
//
// The body gets the product rounded, as it was in memory: bits stay.
#include <map>

#include "tegula/base/range.h"
#include "tegula/ir/builder.h"
#include "tegula/ops/table.h"
#include "tegula/passes/edit.h"
#include "tegula/passes/pass.h"
#include "tegula/passes/plain_dot.h"

namespace tegula {

namespace {

class Joiner {
 public:
  Joiner(Module& module, Function& f, const PassOptions& options)
      : module_(module), f_(f), options_(options), rw_(module, f), readers_(f.values.size()) {
    for (NodeId n = 0; n < f.nodes.size(); ++n)
      for (ValueId v : f.nodes[n].inputs) readers_[v].push_back(n);
    for (const Output& r : f.results) readers_[r.value].push_back(kNone);
  }

  // Which dot each group takes in.
  bool has_work() {
    for (NodeId n = 0; n < f_.nodes.size(); ++n) {
      const Node& group = f_.nodes[n];
      if (group.op != &fused_op || group.attrs.i("inner") != 0) continue;
      for (size_t k = 0; k < group.inputs.size(); ++k)
        if (may_join(n, k)) {
          const Joined j = joined(n, k);
          if (!has_kernel(j)) continue;
          taken_[f_.values[group.inputs[k]].node] = n;
          joined_.emplace(n, k);
          break;
        }
    }
    return !joined_.empty();
  }

  Result<Function> run() {
    for (NodeId n = 0; n < f_.nodes.size(); ++n) {
      if (taken_.count(n) > 0) continue;
      const auto found = joined_.find(n);
      found == joined_.end() ? rw_.take(f_.nodes[n]) : emit(n, found->second);
    }
    return rw_.finish();
  }

 private:
  struct Joined {
    Node node;
    Function body;
    std::vector<ValueId> inputs;
    std::vector<Type> types;
    ValueId product = kNone;  // if it is a result too
  };

  // Its k-th operand is a plain product that nothing before it reads, and no view of another
  // value is a factor: those may begin anywhere, and kernels want whole pieces of 16 bytes.
  bool may_join(NodeId n, size_t k) const {
    const ValueId v = f_.nodes[n].inputs[k];
    const NodeId made = f_.values[v].node;
    if (made == kNone || taken_.count(made) > 0 || !is_plain_dot(f_.nodes[made])) return false;
    const Node& dot = f_.nodes[made];
    if (dot.attrs.has("k_shards") || dot.attrs.flag("accumulate")) return false;
    const auto& readers = readers_[v];
    if (std::count(readers.begin(), readers.end(), n) != 1) return false;
    if (any_of(readers, [&](NodeId r) { return r < n; })) return false;
    return all_of(dot.inputs, [&](ValueId x) { return is_whole(x); }) && is_const(f_.type(v).shape);
  }
  static bool is_const(const Shape& s) {
    return all_of(s, [](const Dim& d) { return d.is_const(); });
  }
  bool is_whole(ValueId v) const {
    const Node* n = f_.producer(v);
    while (n && n->op->is_view && n->op != &slice_op && n->op != &unfold_op)
      n = f_.producer(n->inputs[0]);
    return !n || !n->op->is_view;
  }

  // The node in place of both: the body's parameter k comes first, and is a result if others read
  // it.
  Joined joined(NodeId n, size_t k) const {
    const Node& group = f_.nodes[n];
    const ValueId v = group.inputs[k];
    const Node& dot = f_.nodes[f_.values[v].node];
    Joined j;
    j.body = module_[group.regions[0]];
    std::rotate(j.body.params.begin(), j.body.params.begin() + static_cast<ptrdiff_t>(k),
                j.body.params.begin() + static_cast<ptrdiff_t>(k) + 1);
    for (size_t p = 0; p < j.body.params.size(); ++p) {
      j.body.params[p].name = cat("x", p);
      j.body.values[j.body.params[p].value].index = static_cast<uint32_t>(p);
    }
    j.inputs = dot.inputs;
    for (size_t i = 0; i < group.inputs.size(); ++i)
      if (i != k) j.inputs.push_back(group.inputs[i]);
    j.types = f_.output_types(group);
    if (readers_[v].size() > 1) {
      j.product = v;
      j.body.results.push_back({cat("y", j.body.results.size()), j.body.params[0].value});
      j.types.push_back(f_.type(v));
    }
    j.node.op = &dot_fused_op;
    j.node.attrs = group.attrs;
    j.node.attrs.set("dims", dot.attrs.str("dims"));
    j.node.origin = dot.origin, j.node.phase = group.phase;
    return j;
  }

  bool has_kernel(const Joined& j) const {
    Module m;
    m.symbols = module_.symbols;
    const FuncId body[] = {m.add(j.body)};
    std::vector<Type> in;
    for (ValueId v : j.inputs) in.push_back(f_.type(v));
    const OpCall call{&dot_fused_op, &j.node.attrs, in, j.types, &m, body};
    const auto types = infer(call);
    return types.ok() && *types == j.types && options_.asked().has_kernel(call);
  }

  void emit(NodeId n, size_t k) {
    Joined j = joined(n, k);
    const auto known = std::tuple(f_.nodes[n].regions[0], k, j.product != kNone);
    const auto [at, is_new] = bodies_.try_emplace(known, kNone);
    if (is_new) {
      j.body.name = cat(j.body.name, ".epilogue", bodies_.size());
      at->second = module_.add(std::move(j.body));
    }
    j.node.regions = {at->second};
    for (ValueId& v : j.inputs) v = rw_.id(v);
    const ValueId first = rw_.builder().append(std::move(j.node), std::move(j.inputs), j.types);
    const Node& group = f_.nodes[n];
    for (uint32_t i = 0; i < group.n_outputs; ++i)
      rw_.bind(group.output(i), Var(&rw_.builder(), first + i));
    if (j.product != kNone) rw_.bind(j.product, Var(&rw_.builder(), first + group.n_outputs));
  }

  Module& module_;
  Function& f_;
  const PassOptions& options_;
  Rewriter rw_;
  std::vector<std::vector<NodeId>> readers_;  // kNone: a result
  std::map<NodeId, NodeId> taken_;            // dots, by whom
  std::map<NodeId, size_t> joined_;           // groups, with the operand
  std::map<std::tuple<FuncId, size_t, bool>, FuncId> bodies_;
};

Result<bool> run(Module& module, Function& f, const PassOptions& options) {
  if (options.target->device == DeviceKind::kCpu) return false;
  Joiner joiner(module, f, options);
  return rewrite_if_any(joiner, f);
}

}  // namespace

extern const PassDef epilogues_pass = {
    .name = "epilogues",
    .doc = "elementwise groups become the epilogue of the dot they read, where a kernel has it",
    .phase = PassPhase::kFuse,
    .needs = kIsGrouped,
    .run = run,
};

}  // namespace tegula
