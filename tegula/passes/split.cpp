#include "tegula/passes/split.h"

#include <array>
#include <map>

#include "tegula/base/algorithm.h"
#include "tegula/base/text.h"
#include "tegula/ir/builder.h"
#include "tegula/ops/math.h"

namespace tegula {

std::string_view name_of(PartKind kind) {
  constexpr std::string_view kNames[] = {"whole",      "forward",     "backward", "weight_gradient",
                                         "first_norm", "first_total", "norm",     "total",
                                         "update"};
  return kNames[static_cast<size_t>(kind)];
}

int Program::find(PartKind kind, int stage) const {
  for (size_t i = 0; i < parts.size(); ++i)
    if (parts[i].kind == kind && parts[i].stage == stage) return static_cast<int>(i);
  return -1;
}

namespace {

constexpr std::string_view kGradient = "grad.";
constexpr int kNoStage = -1;

bool is_within(std::string_view scope, std::string_view outer) {
  return scope.starts_with(outer) && (scope.size() == outer.size() || scope[outer.size()] == '.');
}

// Describes a function: a whole step, or one of the two that a step of one stage was split into.
enum class Extent : uint8_t { kStep, kMicroStep, kUpdate };

class Splitter {
 public:
  Splitter(Module& module, FuncId step, const SplitOptions& options, Extent extent = Extent::kStep)
      : m_(module), f_(module[step]), options_(options), extent_(extent) {
    program_.n_stages = static_cast<int>(options.cuts.size()) + 1;
    program_.n_micro_batches = options.n_micro_batches;
  }

  // `of_scope`: an update's, since it has no forward part of its own.
  Result<Program> run(const std::vector<int>* of_scope = nullptr) {
    find_movable();
    if (of_scope) {
      stage_.assign(f_.nodes.size(), kNoStage), of_scope_ = *of_scope;
      of_scope_.resize(m_.scopes.size(), kNoStage);
    } else {
      TEGULA_TRY(find_forward_stages());
    }
    find_backward_stages();
    TEGULA_TRY(find_update_parts());
    if (extent_ == Extent::kStep) TEGULA_TRY(name_gradients());
    make_parts();
    find_flows();
    TEGULA_TRY(check_flows());
    for (size_t part = 0; part < program_.parts.size(); ++part) TEGULA_TRY(emit(part));
    return std::move(program_);
  }
  const std::vector<int>& of_scope() const { return of_scope_; }

 private:
  // A micro step's sums belong to the gradients that they sum.
  bool is_update(const Node& n) const {
    return n.phase == Phase::kUpdate && extent_ != Extent::kMicroStep;
  }
  bool is_backward(const Node& n) const { return n.phase != Phase::kForward && !is_update(n); }
  bool is_one_stage() const { return program_.n_stages == 1; }

  // Made anew by whoever reads it: what depends on weights alone, and views.
  void find_movable() {
    of_weights_.resize(f_.values.size());
    movable_.resize(f_.nodes.size());
    // Sums that an update reads are what a step's gradients are: nobody makes anew what is of them.
    for (const Param& p : f_.params)
      of_weights_[p.value] =
          p.role != Role::kInput && !(extent_ == Extent::kUpdate && p.name.starts_with(kGradient));
    for (NodeId i = 0; i < f_.nodes.size(); ++i) {
      const Node& n = f_.nodes[i];
      const bool free = !n.op->has_effect && std::all_of(n.inputs.begin(), n.inputs.end(),
                                                         [&](ValueId v) { return of_weights_[v]; });
      for (uint32_t k = 0; k < n.n_outputs; ++k) of_weights_[n.output(k)] = free;
      const bool is_view = n.op->is_view && n.inputs.size() == 1 &&
                           f_.type(n.inputs[0]).bytes() <= f_.type(n.output()).bytes();
      movable_[i] = free || is_view;
    }
  }
  // The node that a value comes from, through what is movable: kNone for parameters and constants.
  NodeId source(ValueId v) const {
    while (f_.values[v].node != kNone) {
      const NodeId n = f_.values[v].node;
      if (!movable_[n]) return n;
      if (of_weights_[v]) return kNone;
      v = f_.nodes[n].inputs[0];
    }
    return kNone;
  }

  Status find_forward_stages() {
    stage_.assign(f_.nodes.size(), kNoStage);
    // First by what flows, a cut's scope lifting its nodes; then all nodes of a scope together,
    // since some of them depend on no activation (a mask drawn from a seed).
    std::vector<int> of_scope(m_.scopes.size(), kNoStage);
    std::vector<uint8_t> is_found(options_.cuts.size());
    for (const bool by_scope : {false, true})
      for (NodeId i = 0; i < f_.nodes.size(); ++i) {
        const Node& n = f_.nodes[i];
        if (n.phase != Phase::kForward) continue;
        int& known = of_scope[n.origin.scope];
        int at = 0;
        for (ValueId v : n.inputs)
          if (const NodeId s = source(v); s != kNone) at = std::max(at, stage_[s]);
        for (size_t c = 0; c < options_.cuts.size(); ++c)
          if (is_within(m_.scopes[n.origin.scope], options_.cuts[c]))
            at = std::max(at, static_cast<int>(c) + 1), is_found[c] = 1;
        if (!m_.scopes[n.origin.scope].empty()) {
          if (movable_[i]) continue;
          if (by_scope) at = std::max(at, known);
          known = std::max(known, at);
        }
        stage_[i] = at;
      }
    for (size_t c = 0; c < is_found.size(); ++c)
      if (!is_found[c])
        return invalid_argument(cat("split: no node of ", f_.name, " is in the scope \"",
                                    options_.cuts[c], "\", where stage ", c + 1, " should begin"));
    of_scope_ = std::move(of_scope);
    for (int s = 0; s < program_.n_stages; ++s)
      if (std::find(stage_.begin(), stage_.end(), s) == stage_.end())
        return invalid_argument(cat("split: nothing is left for stage ", s, " of ",
                                    program_.n_stages, ": scopes must be given in their order"));
    return {};
  }

  // A gradient stands in the scope of its forward node; without a scope, with what flows into it.
  void find_backward_stages() {
    for (NodeId i = 0; i < f_.nodes.size(); ++i) {
      const Node& n = f_.nodes[i];
      if (!is_backward(n)) continue;
      int at = of_scope_[n.origin.scope];
      if (m_.scopes[n.origin.scope].empty() || at == kNoStage) {
        at = program_.n_stages - 1;
        for (ValueId v : n.inputs)
          if (const NodeId s = source(v); s != kNone && is_backward(f_.nodes[s]))
            at = std::min(at, stage_[s]);
      }
      stage_[i] = at;
    }
    if (!options_.weight_gradients_apart) return;
    // The work that an earlier stage waits for is B's; the rest is W's.
    waited_for_.assign(f_.nodes.size(), 0);
    for (auto i = static_cast<NodeId>(f_.nodes.size()); i-- > 0;) {
      const Node& n = f_.nodes[i];
      if (!is_backward(n)) continue;
      for (ValueId v : n.inputs) {
        const NodeId s = source(v);
        if (s == kNone || !is_backward(f_.nodes[s])) continue;
        if (stage_[s] != stage_[i] || waited_for_[i]) waited_for_[s] = 1;
      }
    }
  }

  // Parts of an update with several stages: nodes without a scope are common to all; what they need
  // of a stage's gradients is that stage's kNorm.
  Status find_update_parts() {
    is_norm_.assign(f_.nodes.size(), 0), round_.assign(f_.nodes.size(), 0);
    if (is_one_stage()) return {};
    for (auto i = static_cast<NodeId>(f_.nodes.size()); i-- > 0;) {
      const Node& n = f_.nodes[i];
      if (!is_update(n) || movable_[i]) continue;
      const bool is_common = m_.scopes[n.origin.scope].empty();
      stage_[i] = is_common ? kNoStage : std::max(0, of_scope_[n.origin.scope]);
      if (!is_common && !is_norm_[i]) continue;
      for (ValueId v : n.inputs)
        if (const NodeId s = source(v);
            s != kNone && is_update(f_.nodes[s]) && !m_.scopes[f_.nodes[s].origin.scope].empty())
          is_norm_[s] = 1;
    }
    // A stage that reads what is known once is asked again.
    for (NodeId i = 0; i < f_.nodes.size(); ++i) {
      const Node& n = f_.nodes[i];
      if (!is_update(n) || movable_[i]) continue;
      const bool is_common = stage_[i] == kNoStage;
      for (ValueId v : n.inputs)
        if (const NodeId s = source(v); s != kNone && is_update(f_.nodes[s]))
          round_[i] =
              std::max(round_[i], round_[s] + (stage_[s] == kNoStage && !is_common ? 1 : 0));
      if (is_common || is_norm_[i]) last_round_ = std::max(last_round_, round_[i]);
    }
    if (last_round_ <= 1) return {};
    return internal_error(cat("split: the update of ", f_.name, " asks all stages of their ",
                              "gradients ", last_round_ + 1, " times, and two are provided for"));
  }

  // The values that micro-batches sum: the step's results "grad.*". Nothing else may flow from a
  // micro-batch into the update.
  Status name_gradients() {
    for (const Output& r : f_.results)
      if (r.name.starts_with(kGradient)) gradient_[root(r.value)] = r.name;
    if (options_.n_micro_batches == 1) return {};
    for (const Node& n : f_.nodes) {
      if (!is_update(n)) continue;
      for (ValueId v : n.inputs) {
        const NodeId s = source(v);
        if (s == kNone || is_update(f_.nodes[s]) || gradient_.contains(root(v))) continue;
        return internal_error(cat("split: ", n.op->name, " of the update reads %", v,
                                  ", which no result \"grad.*\" names: it cannot be summed"));
      }
    }
    return {};
  }
  // The value that a movable view is a view of.
  ValueId root(ValueId v) const {
    while (f_.values[v].node != kNone && movable_[f_.values[v].node] && !of_weights_[v])
      v = f_.nodes[f_.values[v].node].inputs[0];
    return v;
  }

  bool is_first(NodeId i) const { return round_[i] < last_round_; }
  PartKind kind_of(NodeId i) const {
    const Node& n = f_.nodes[i];
    if (is_update(n))
      return is_one_stage()          ? PartKind::kUpdate
             : stage_[i] == kNoStage ? (is_first(i) ? PartKind::kFirstTotal : PartKind::kTotal)
             : is_norm_[i]           ? (is_first(i) ? PartKind::kFirstNorm : PartKind::kNorm)
                                     : PartKind::kUpdate;
    if (is_one_stage() && !options_.weight_gradients_apart) return PartKind::kWhole;
    if (n.phase == Phase::kForward) return PartKind::kForward;
    return options_.weight_gradients_apart && !waited_for_[i] ? PartKind::kWeightGradient
                                                              : PartKind::kBackward;
  }

  void make_parts() {
    // Forward parts upwards, backward parts downwards, the update's upwards.
    std::map<std::array<int, 3>, std::vector<NodeId>> nodes;
    for (NodeId i = 0; i < f_.nodes.size(); ++i) {
      if (movable_[i]) continue;
      const PartKind kind = kind_of(i);
      const int stage = std::max(0, stage_[i]);  // what all stages share is the first one's
      const bool is_back = kind == PartKind::kBackward || kind == PartKind::kWeightGradient;
      const int group = is_back ? static_cast<int>(PartKind::kBackward) : static_cast<int>(kind);
      nodes[{group, is_back ? -stage : stage, static_cast<int>(kind)}].push_back(i);
    }
    part_.assign(f_.nodes.size(), -1);
    for (const auto& [key, of_part] : nodes) {
      for (NodeId i : of_part) part_[i] = static_cast<int>(program_.parts.size());
      program_.parts.push_back({static_cast<PartKind>(key[2]), std::abs(key[1]), kNone});
    }
    find_last_readers();
  }

  // Nodes of a part and those that it makes anew, as a mask.
  std::vector<uint8_t> nodes_of(size_t part) const {
    std::vector<uint8_t> has(f_.nodes.size());
    const auto want = [&](ValueId v) {
      if (const NodeId p = f_.values[v].node; p != kNone && movable_[p]) has[p] = 1;
    };
    for (const Output& r : f_.results)
      if (home_of(r) == static_cast<int>(part)) want(r.value);
    for (auto i = static_cast<NodeId>(f_.nodes.size()); i-- > 0;) {
      if (part_[i] == static_cast<int>(part)) has[i] = 1;
      if (has[i])
        for (ValueId v : f_.nodes[i].inputs) want(v);
    }
    return has;
  }
  bool is_gradient(const Output& r) const {
    return extent_ == Extent::kStep && r.name.starts_with(kGradient);
  }
  // The part that a result of the step is a result of: its maker; of state that nobody computes the
  // last that reads what it was, else the last.
  int home_of(const Output& r) const {
    if (is_gradient(r)) return -1;
    if (const NodeId s = source(r.value); s != kNone) return part_[s];
    int last = static_cast<int>(program_.parts.size()) - 1;
    for (const Param& p : f_.params)
      if (p.donated_to >= 0 && &f_.results[p.donated_to] == &r)
        last = std::max(0, last_reader_[p.value] >= 0 ? last_reader_[p.value] : last);
    return last;
  }
  // By parameter: the last part that has a node which reads them, through what is movable, too.
  void find_last_readers() {
    last_reader_.assign(f_.values.size(), -1);
    for (auto i = static_cast<NodeId>(f_.nodes.size()); i-- > 0;) {
      const Node& n = f_.nodes[i];
      int at = part_[i];
      if (movable_[i])
        for (uint32_t k = 0; k < n.n_outputs; ++k) at = std::max(at, last_reader_[n.output(k)]);
      for (ValueId v : n.inputs) last_reader_[v] = std::max(last_reader_[v], at);
    }
  }

  void find_flows() {
    std::map<ValueId, std::vector<int>> readers;
    for (size_t part = 0; part < program_.parts.size(); ++part) {
      const auto has = nodes_of(part);
      const auto read = [&](ValueId v) {
        const NodeId p = f_.values[v].node;
        if (p == kNone || has[p]) return;
        std::vector<int>& to = readers[v];
        if (to.empty() || to.back() != static_cast<int>(part)) to.push_back(static_cast<int>(part));
      };
      for (NodeId i = 0; i < f_.nodes.size(); ++i)
        if (has[i])
          for (ValueId v : f_.nodes[i].inputs) read(v);
    }
    std::vector<int> count(program_.parts.size());
    for (auto& [v, to] : readers) {
      const int from = part_[f_.values[v].node];
      const Part& maker = program_.parts[from];
      const auto gradient = gradient_.find(v);
      std::string name = gradient != gradient_.end()
                             ? gradient->second
                             : cat(name_of(maker.kind), ".", maker.stage, ".", count[from]++);
      flow_of_[v] = static_cast<int>(program_.flows.size());
      const bool sums = options_.n_micro_batches > 1 && gradient != gradient_.end();
      program_.flows.push_back({std::move(name), f_.type(v), from, std::move(to), sums});
    }
  }

  Status check_flows() const {
    for (const auto& [v, flow] : flow_of_)
      for (int to : program_.flows[flow].to)
        if (to <= program_.flows[flow].from) {
          const Node& maker = f_.nodes[f_.values[v].node];
          const Part& p = program_.parts[to];
          return invalid_argument(
              cat("split: the ", name_of(p.kind), " part of stage ", p.stage, " reads a ",
                  maker.op->name, " of \"", m_.scopes[maker.origin.scope],
                  "\", which is made after it: cut at other scopes than ", cuts_text()));
        }
    return {};
  }
  std::string cuts_text() const { return joined(options_.cuts); }

  // One part's function: the parameters that it reads, then what flows in.
  struct Emission {
    Builder b;
    std::vector<ValueId> map;
    Emission(Module& m, std::string name, size_t n) : b(m, std::move(name)), map(n, kNone) {}
  };
  bool is_summed(const Flow& flow) const {
    return options_.n_micro_batches > 1 && flow.name.starts_with(kGradient);
  }
  std::string name_of_part(const Part& p) const {
    // Those of a step with one stage have the names they have in plans and reports.
    if (p.kind == PartKind::kWhole) return "micro_step";
    if (is_one_stage() && p.kind == PartKind::kUpdate) return "update";
    if (p.kind == PartKind::kTotal || p.kind == PartKind::kFirstTotal)
      return std::string(name_of(p.kind));
    return cat(name_of(p.kind), ".", p.stage);
  }

  Status emit(size_t part) {
    const auto self = static_cast<int>(part);
    const auto has = nodes_of(part);
    Emission e(m_, name_of_part(program_.parts[part]), f_.values.size());
    declare_params(e, self, has);
    for (NodeId i = 0; i < f_.nodes.size(); ++i) {
      if (!has[i]) continue;
      const Node& n = f_.nodes[i];
      std::vector<ValueId> in;
      for (ValueId v : n.inputs) in.push_back(e.map[v]);
      const std::vector<Type> types = f_.output_types(n);
      const ValueId first = e.b.append(n, std::move(in), types);
      for (uint32_t k = 0; k < n.n_outputs; ++k) e.map[n.output(k)] = first + k;
    }
    add_results(e, self);
    program_.parts[part].function = TEGULA_TRY(e.b.finish_into_module());
    return {};
  }

  void declare_params(Emission& e, int part, const std::vector<uint8_t>& has) {
    std::vector<uint8_t> is_read(f_.values.size());
    for (NodeId i = 0; i < f_.nodes.size(); ++i)
      if (has[i])
        for (ValueId v : f_.nodes[i].inputs) is_read[v] = 1;
    for (const Param& p : f_.params) {
      const bool takes_result = p.donated_to >= 0 && home_of(f_.results[p.donated_to]) == part;
      if (is_read[p.value] || takes_result)
        e.map[p.value] = e.b.param(p.name, f_.type(p.value), p.role).id();
    }
    for (const auto& [v, flow] : flow_of_) {
      const Flow& w = program_.flows[flow];
      const bool reads = std::find(w.to.begin(), w.to.end(), part) != w.to.end();
      if (!reads && w.from != part) continue;
      const Role role = is_summed(w) ? Role::kState : Role::kInput;
      const ValueId id = e.b.param(w.name, w.type, role).id();
      if (reads) e.map[v] = id;
      if (!reads) memory_[v] = id;
    }
  }

  void add_results(Emission& e, int part) {
    Builder& b = e.b;
    for (const Output& r : f_.results) {
      if (home_of(r) != part) continue;
      b.result(r.name, Var(&b, e.map[r.value]));
      for (const Param& p : f_.params)
        if (p.donated_to >= 0 && &f_.results[p.donated_to] == &r) b.donate(p.name, r.name);
    }
    b.set_phase(Phase::kUpdate);  // sums are not recomputed, and nothing waits for them
    for (const auto& [v, flow] : flow_of_) {
      const Flow& w = program_.flows[flow];
      if (w.from == part) {
        Var made(&b, e.map[v]);
        const Scope scope(b, m_.scopes[f_.nodes[f_.values[v].node].origin.scope]);
        if (is_summed(w)) made = Var(&b, memory_[v]) + made * (1.0 / options_.n_micro_batches);
        b.result(w.name, made);
        b.donate(w.name, w.name);
      } else if (is_summed(w) && w.to.back() == part) {
        b.result(w.name, zeros_like(Var(&b, e.map[v])));
        b.donate(w.name, w.name);
      }
    }
  }

  Module& m_;
  const Function f_;  // a copy: the module grows
  const SplitOptions& options_;
  const Extent extent_;
  Program program_;
  std::vector<uint8_t> of_weights_;  // per value: it depends on weights and state alone
  std::vector<uint8_t> movable_;     // per node
  std::vector<int> stage_;           // per node
  std::vector<int> of_scope_;        // stage of each scope's forward nodes
  std::vector<uint8_t> waited_for_;  // backward nodes that B has
  std::vector<uint8_t> is_norm_;     // update nodes that kNorm has, or kFirstNorm
  std::vector<int> round_;           // per update node: how often stages were asked before
  int last_round_ = 0;
  std::vector<int> part_;         // per node; -1: movable
  std::vector<int> last_reader_;  // per value: a part; -1: none
  std::map<ValueId, std::string> gradient_;
  std::map<ValueId, int> flow_of_;
  std::map<ValueId, ValueId> memory_;  // of a flow in the part that makes it
};

}  // namespace

Result<Program> split(Module& module, FuncId step, const SplitOptions& options) {
  if (options.n_micro_batches < 1)
    return invalid_argument(
        cat("split: ", options.n_micro_batches, " micro-batches, not 1 or more"));
  return Splitter(module, step, options).run();
}

Result<Program> split_stages(Module& module, FuncId micro_step, FuncId update,
                             const SplitOptions& options) {
  Splitter micro(module, micro_step, options, Extent::kMicroStep);
  Program program = TEGULA_TRY(micro.run());
  const Program after =
      TEGULA_TRY(Splitter(module, update, options, Extent::kUpdate).run(&micro.of_scope()));
  const auto n_micro = static_cast<int>(program.parts.size());
  program.parts.insert(program.parts.end(), after.parts.begin(), after.parts.end());
  for (Flow flow : after.flows) {
    flow.from += n_micro;
    for (int& to : flow.to) to += n_micro;
    program.flows.push_back(std::move(flow));
  }
  // Sums are state of both functions: who makes them, and who reads them.
  for (int from = 0; from < n_micro; ++from)
    for (const Param& p : module[program.parts[from].function].params) {
      if (!p.name.starts_with(kGradient) || p.donated_to < 0) continue;
      const Function& maker = module[program.parts[from].function];
      Flow sum{p.name, maker.type(p.value), from, {}, true};
      for (size_t to = static_cast<size_t>(n_micro); to < program.parts.size(); ++to)
        for (const Param& read : module[program.parts[to].function].params)
          if (read.name == p.name) sum.to.push_back(static_cast<int>(to));
      if (sum.to.empty()) return internal_error(cat("split: the update does not read ", p.name));
      program.flows.push_back(std::move(sum));
    }
  return program;
}

}  // namespace tegula
