// Control flow whose course is known goes, and what nobody reads of it: a cond with a known
// predicate becomes its branch, a loop that never runs its first carries; results that nobody
// reads leave the bodies, with the carries that only feed themselves and the operands that only
// these read. Works backward from the function's results, so that what a loop no longer takes need
// not be made, and removes dead nodes with it. All that stays is the same ops: bits stay.

#include "tegula/base/range.h"
#include "tegula/ir/builder.h"
#include "tegula/ir/regions.h"
#include "tegula/ops/autodiff.h"
#include "tegula/ops/common/regions.h"
#include "tegula/ops/math.h"
#include "tegula/passes/pass.h"
#include "tegula/passes/peephole.h"

namespace tegula {

namespace {

// For one node with regions: the parameters and results of its bodies that are of use.
struct Kept {
  std::vector<bool> param, result;
  std::vector<uint32_t> saves;  // of the saved carries, by their place among them

  bool is_all(size_t n_saves) const {
    return !contains(param, false) && !contains(result, false) && saves.size() == n_saves;
  }
};

class Control {
 public:
  Control(Module& module, const Function& f)
      : module_(module), f_(f), is_live_(f.values.size(), 0), kept_(f.nodes.size()) {
    for (const Output& r : f.results) is_live_[r.value] = 1;
    for (auto n = static_cast<NodeId>(f.nodes.size()); n-- > 0;) visit(n);
  }

  bool has_work() const { return has_work_; }

  Result<Function> run() {
    Rewriter rw(module_, f_);
    for (NodeId n = 0; n < f_.nodes.size(); ++n) {
      const Node& node = f_.nodes[n];
      if (!is_read(node)) continue;
      rw.builder().set_origin(node.origin);
      rw.builder().set_phase(node.phase);
      if (const int branch = known_branch(node); branch >= 0)
        take_branch(rw, node, static_cast<size_t>(branch));
      else if (never_runs(node))
        skip(rw, node);
      else if (kept_[n])
        prune(rw, node, *kept_[n]);
      else
        rw.clone(node);
    }
    return rw.finish();
  }

 private:
  bool is_read(const Node& n) const {
    for (uint32_t i = 0; i < n.n_outputs; ++i)
      if (is_live_[n.output(i)]) return true;
    return false;
  }

  static RegionLayout layout_of(const Node& n) {
    return RegionLayout(*n.op->regions, n.attrs, n.inputs.size());
  }
  const Function& body_of(const Node& n) const { return module_[n.regions[n.op->regions->body()]]; }

  void visit(NodeId id) {
    const Node& n = f_.nodes[id];
    if (!is_read(n)) return;
    if (!has_bodies(*n.op)) {
      for (ValueId v : n.inputs) is_live_[v] = 1;
      return;
    }
    const RegionLayout l = layout_of(n);
    Kept kept = kept_of(n, l);
    for (size_t i = 0; i < n.inputs.size(); ++i)
      if (i < l.first || kept.param[i - l.first]) is_live_[n.inputs[i]] = 1;
    has_work_ |= !kept.is_all(l.saves.size()) || known_branch(n) >= 0 || never_runs(n);
    if (!kept.is_all(l.saves.size())) kept_[id] = std::move(kept);
  }

  Kept kept_of(const Node& n, const RegionLayout& l) const {
    const RegionDef& def = *n.op->regions;
    const auto n_own = static_cast<uint32_t>(n.n_outputs - l.saves.size());
    Kept k;
    for (uint32_t r = 0; r < n_own; ++r) k.result.push_back(is_live_[n.output(r)] != 0);
    for (uint32_t s = 0; s < l.saves.size(); ++s)
      if (is_live_[n.output(n_own + s)]) {
        k.saves.push_back(s);
        k.result[static_cast<size_t>(l.saves[s])] = true;
      }
    for (bool grows = true; grows;) {
      k.param.assign(n.inputs.size() - l.first, false);
      for (size_t r = 0; r < n.regions.size(); ++r) {
        const bool is_test = def.parts.items[r].role == RegionRole::kCondition;
        const auto live = live_params(module_[n.regions[r]], is_test ? nullptr : &k.result);
        for (size_t p = 0; p < live.size(); ++p) k.param[p] = k.param[p] || live[p];
      }
      grows = false;
      for (size_t c = 0; c < l.n_carry; ++c) {
        grows |= k.param[c] && !k.result[c];
        k.result[c] = k.param[c] = k.param[c] || k.result[c];
      }
    }
    return k;
  }

  // The branch that will run, if it is known; -1: it is not, or the op is no choice.
  int known_branch(const Node& n) const {
    if (!has_bodies(*n.op) || !n.op->regions->is_choice()) return -1;
    const auto predicate = uniform_value(f_, n.inputs[0]);
    return predicate ? *predicate == 0 : -1;
  }

  bool never_runs(const Node& n) const {
    if (!has_bodies(*n.op)) return false;
    const RegionDef& def = *n.op->regions;
    if (!def.length.empty()) return n.attrs.dims(def.length)[0] == Dim(0);
    if (def.most_rounds.empty()) return false;
    if (n.attrs.i(def.most_rounds) == 0) return true;
    const Function& test = module_[n.regions[0]];
    const auto go = uniform_value(test, test.results[0].value);
    return go && *go == 0;
  }

  void take_branch(Rewriter& rw, const Node& n, size_t branch) {
    const Function f = module_[n.regions[branch]];  // a copy: the module grows
    std::vector<Var> in;
    for (size_t i = 1; i < n.inputs.size(); ++i)
      in.push_back(rw.has(n.inputs[i]) ? rw.at(n.inputs[i]) : zeros(rw, n.inputs[i]));
    const auto out = inline_call(rw.builder(), f, in);
    for (uint32_t i = 0; i < n.n_outputs; ++i) rw.bind(n.output(i), out[i]);
  }
  // For what is not made any more, since nobody reads it.
  Var zeros(Rewriter& rw, ValueId v) const { return fill(rw.builder(), 0, f_.type(v)); }

  // Carries are what they were; what is stacked has no slice.
  void skip(Rewriter& rw, const Node& n) const {
    const RegionLayout l = layout_of(n);
    for (uint32_t i = 0; i < n.n_outputs; ++i) {
      if (!is_live_[n.output(i)]) continue;
      rw.bind(n.output(i), i < l.n_carry ? rw.at(n.inputs[l.first + i]) : zeros(rw, n.output(i)));
    }
  }

  void prune(Rewriter& rw, const Node& n, const Kept& k) {
    const RegionDef& def = *n.op->regions;
    const RegionLayout l = layout_of(n);
    Builder& b = rw.builder();
    std::vector<Var> in;
    int64_t n_carry = 0, n_xs = 0;
    std::vector<int64_t> place(l.n_carry, -1);  // of the carries that stay
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      if (i >= l.first && !k.param[i - l.first]) continue;
      in.push_back(rw.at(n.inputs[i]));
      if (l.is_carry(i)) place[i - l.first] = n_carry++;
      n_xs += l.is_x(i);
    }
    Attrs attrs = n.attrs;
    if (!def.carries.empty()) attrs.set(def.carries, n_carry);
    if (!def.slices.empty()) attrs.set(def.slices, n_xs);
    std::vector<int64_t> saves;
    for (uint32_t s : k.saves) saves.push_back(place[static_cast<size_t>(l.saves[s])]);
    if (!l.saves.empty()) attrs.set(def.saves, saves);
    std::vector<FuncId> regions;
    for (size_t r = 0; r < n.regions.size(); ++r) {
      const Function& f = module_[n.regions[r]];
      const bool is_test = def.parts.items[r].role == RegionRole::kCondition;
      Function rest = restrict_to(f, k.param, is_test ? std::vector<bool>(1, true) : k.result);
      rest.name = fresh_name(b, "used");
      regions.push_back(module_.add(std::move(rest)));
    }
    const auto out = b.emit_n(*n.op, std::move(attrs), in, std::move(regions), n.origin.loc);
    if (b.failed()) return;
    const auto n_own = static_cast<uint32_t>(k.result.size());
    size_t at = 0;
    for (uint32_t r = 0; r < n_own; ++r)
      if (k.result[r]) rw.bind(n.output(r), out[at++]);
    for (uint32_t s : k.saves) rw.bind(n.output(n_own + s), out[at++]);
  }

  Module& module_;
  const Function& f_;
  std::vector<uint8_t> is_live_;           // per value
  std::vector<std::optional<Kept>> kept_;  // per node; none: all of it
  bool has_work_ = false;
};

Result<bool> run(Module& module, Function& f, const PassOptions&) {
  if (!any_of(f.nodes, [](const Node& n) { return has_bodies(*n.op); })) return false;
  Control control(module, f);
  return rewrite_if_any(control, f);
}

}  // namespace

extern const PassDef control_pass = {
    .name = "control",
    .doc = "branches and loops of known course go, and what of them nobody reads",
    .phase = PassPhase::kAny,
    .run = run,
};

}  // namespace tegula
