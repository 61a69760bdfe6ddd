// make_plan: Function -> Plan, in four steps: order the nodes; turn them into launches on virtual
// slots (resolving views, inserting copies where a kernel cannot read strides); merge slots where a
// result may overwrite an operand or a donated parameter; lay the rest into the arena.
#include <algorithm>
#include <chrono>

#include "tegula/ops/table.h"
#include "tegula/plan/memory.h"
#include "tegula/plan/order.h"
#include "tegula/plan/plan.h"
#include "tegula/plan/views.h"

namespace tegula {

namespace {

TensorRef query_ref(const PlanTensor& t) {
  TensorRef r;
  r.dtype = t.type.dtype, r.rank = t.type.shape.rank();
  for (int d = 0; d < r.rank; ++d) r.shape[d] = t.type.shape[d].bound(), r.stride[d] = t.stride[d];
  return r;
}

std::vector<TensorRef> query_refs(const std::vector<PlanTensor>& ts) {
  std::vector<TensorRef> refs;
  for (const PlanTensor& t : ts) refs.push_back(query_ref(t));
  return refs;
}

bool same_view(const PlanTensor& a, const PlanTensor& b) {
  if (a.slot != b.slot || a.byte_offset != b.byte_offset || !(a.type == b.type)) return false;
  for (int d = 0; d < a.type.shape.rank(); ++d)
    if (a.stride[d] != b.stride[d] && a.type.shape[d].bound() != 1) return false;
  return true;
}

class Planner {
 public:
  Planner(std::shared_ptr<const Module> module, FuncId id, const PlanOptions& options)
      : module_(std::move(module)), f_((*module_)[id]), options_(options) {}

  Result<Plan> run();

 private:
  int new_slot(int64_t bytes, const std::string& name, Phase phase);
  Status add_node(const Node& n);
  Status add_view(const Node& n, const OpCall& call);
  PlanTensor add_copy(const PlanTensor& from, const Node& cause);
  void choose(Step& step, const Node& n);
  Status plan_regions(Step& step, const Node& n);
  void find_lifetimes();
  void donate();
  void overwrite_operands();
  bool may_take_over(int from, int to, int producer, bool alias_at_producer);
  void merge(int from, int to);
  void finish_layout();

  std::shared_ptr<const Module> module_;
  const Function& f_;
  const PlanOptions& options_;
  Plan plan_;
  std::vector<PlanTensor> tensors_;  // per value
  std::vector<int> producer_;        // per slot: the step that first writes it; -1: parameter
};

int Planner::new_slot(int64_t bytes, const std::string& name, Phase phase) {
  Slot s;
  s.bytes = bytes, s.name = name, s.phase = phase;
  plan_.slots.push_back(std::move(s));
  producer_.push_back(static_cast<int>(plan_.steps.size()));
  return static_cast<int>(plan_.slots.size()) - 1;
}

PlanTensor Planner::add_copy(const PlanTensor& from, const Node& cause) {
  Step step;
  step.op = &copy_op;
  step.phase = cause.phase, step.loc = cause.loc;
  PlanTensor to;
  to.type = from.type;
  set_contiguous(to);
  to.slot = new_slot(to.type.bytes(), cat("copy for ", cause.op->name), cause.phase);
  step.in = {from}, step.out = {to};
  Node node;
  node.op = &copy_op;
  choose(step, node);
  step.bytes = 2 * to.type.bytes();
  plan_.steps.push_back(std::move(step));
  return to;
}

Status Planner::add_view(const Node& n, const OpCall& call) {
  for (uint32_t i = 0; i < n.n_outputs; ++i) {
    const ValueId from = n.inputs[n.inputs.size() > 1 ? i : 0];
    auto view = view_of(call, i, tensors_[from]);
    if (!view.ok()) {
      view = view_of(call, i, add_copy(tensors_[from], n));
      if (!view.ok()) return std::move(view).error();
    }
    tensors_[n.output(i)] = *view;
  }
  return {};
}

void Planner::choose(Step& step, const Node& n) {
  const auto in = query_refs(step.in), out = query_refs(step.out);
  const KernelQuery query{&n.attrs, in, out, step.program.get(), options_.n_threads};
  step.kernel = choose_kernel(*n.op, query, options_);
  if (step.kernel && step.kernel->workspace_bytes)
    if (const int64_t bytes = step.kernel->workspace_bytes(query); bytes > 0) {
      step.workspace = new_slot(bytes, cat("workspace of ", step.kernel->name), n.phase);
      plan_.slots.back().is_workspace = true;
    }
}

Status Planner::add_node(const Node& n) {
  const auto in_types = f_.input_types(n), out_types = f_.output_types(n);
  const OpCall call{n.op, &n.attrs, in_types, out_types, module_.get(), n.regions};
  if (n.op->is_view) return add_view(n, call);
  Step step;
  step.op = n.op, step.attrs = n.attrs, step.phase = n.phase, step.loc = n.loc;
  for (ValueId v : n.inputs) step.in.push_back(tensors_[v]);
  for (uint32_t i = 0; i < n.n_outputs; ++i) {
    PlanTensor t;
    t.type = out_types[i];
    set_contiguous(t);
    step.out.push_back(t);
  }
  if (!n.regions.empty()) {
    auto st = plan_regions(step, n);
    if (!st.ok()) return st;
  }
  if (step.regions.empty()) {
    const auto in = query_refs(step.in), out = query_refs(step.out);
    const KernelQuery query{&n.attrs, in, out, step.program.get(), options_.n_threads};
    if (options_.use_kernels && !choose_kernel(*n.op, query, options_)) {
      // Perhaps a kernel wants contiguous operands.
      auto dense = step.in;
      for (PlanTensor& t : dense) set_contiguous(t);
      const auto dense_in = query_refs(dense);
      const KernelQuery dense_query{&n.attrs, dense_in, out, step.program.get(),
                                    options_.n_threads};
      if (choose_kernel(*n.op, dense_query, options_))
        for (PlanTensor& t : step.in)
          if (!is_contiguous(t)) t = add_copy(t, n);
    }
  }
  for (uint32_t i = 0; i < n.n_outputs; ++i) {
    step.out[i].slot = new_slot(step.out[i].type.bytes(), std::string(n.op->name), n.phase);
    tensors_[n.output(i)] = step.out[i];
  }
  if (step.regions.empty()) choose(step, n);
  const Bytes bytes = bytes_of(call);
  step.flops = flops_of(call), step.bytes = bytes.read + bytes.written;
  plan_.steps.push_back(std::move(step));
  return {};
}

void Planner::find_lifetimes() {
  for (size_t s = 0; s < plan_.slots.size(); ++s) {
    plan_.slots[s].first_step = std::max(producer_[s], 0);
    plan_.slots[s].last_step = plan_.slots[s].first_step;
  }
  auto touch = [&](int slot, int step) {
    Slot& s = plan_.slots[static_cast<size_t>(slot)];
    s.first_step = std::min(s.first_step, step), s.last_step = std::max(s.last_step, step);
  };
  for (int i = 0; i < static_cast<int>(plan_.steps.size()); ++i) {
    const Step& step = plan_.steps[static_cast<size_t>(i)];
    for (const PlanTensor& t : step.in) touch(t.slot, i);
    for (const PlanTensor& t : step.out) touch(t.slot, i);
    if (step.workspace >= 0) touch(step.workspace, i);
  }
  for (const auto& r : plan_.results) touch(r.tensor.slot, static_cast<int>(plan_.steps.size()));
}

// May everything in slot `from` (written first by step `producer`) live in `to` instead? Only if
// nobody touches `to` later, and the producer itself only through an operand it may overwrite.
bool Planner::may_take_over(int from, int to, int producer, bool alias_at_producer) {
  const Slot& a = plan_.slots[static_cast<size_t>(from)];
  const Slot& b = plan_.slots[static_cast<size_t>(to)];
  if (a.bytes != b.bytes || a.is_workspace || b.is_workspace) return false;
  if (b.last_step > producer) return false;
  const Step& step = plan_.steps[static_cast<size_t>(producer)];
  const PlanTensor* written = nullptr;
  for (const PlanTensor& t : step.out) {
    if (t.slot == to) return false;
    if (t.slot == from) written = &t;
  }
  for (const PlanTensor& t : step.in) {
    if (t.slot != to) continue;
    if (!alias_at_producer || !written) return false;
    PlanTensor moved = *written;
    moved.slot = to;
    if (!same_view(t, moved)) return false;
  }
  return true;
}

void Planner::merge(int from, int to) {
  auto move = [&](PlanTensor& t) {
    if (t.slot == from) t.slot = to;
  };
  Slot& gone = plan_.slots[static_cast<size_t>(from)];
  Slot& kept = plan_.slots[static_cast<size_t>(to)];
  const int end = std::min(gone.last_step + 1, static_cast<int>(plan_.steps.size()));
  for (int i = gone.first_step; i < end; ++i) {
    Step& s = plan_.steps[static_cast<size_t>(i)];
    for (PlanTensor& t : s.in) move(t);
    for (PlanTensor& t : s.out) move(t);
  }
  if (gone.last_step >= static_cast<int>(plan_.steps.size()))
    for (auto& r : plan_.results) move(r.tensor);
  kept.last_step = std::max(kept.last_step, gone.last_step);
  gone.bytes = 0;
}

// The elementwise kernels read each element before they write it.
bool overwrites(const Step& s, size_t operand, size_t result) {
  if (s.op->is_elementwise || s.op == &copy_op) return true;
  if (s.program && s.op->name == "fused") return s.kernel != nullptr;
  for (const auto& [in, out] : s.op->aliases)
    if (static_cast<size_t>(in) == operand && static_cast<size_t>(out) == result) return true;
  return false;
}

void Planner::donate() {
  std::vector<std::pair<PlanTensor, PlanTensor>> copies;  // to run after everything else
  Node at_end;
  at_end.op = &copy_op;
  at_end.phase = Phase::kUpdate;
  for (size_t p = 0; p < plan_.params.size(); ++p) {
    const int r = plan_.params[p].donated_to;
    if (r < 0) continue;
    const PlanTensor home = plan_.params[p].tensor;
    PlanTensor& value = plan_.results[static_cast<size_t>(r)].tensor;
    if (same_view(value, home)) continue;  // unchanged state
    const Slot& slot = plan_.slots[static_cast<size_t>(value.slot)];
    bool merged = false;
    if (slot.kind == SlotKind::kArena && value.byte_offset == 0 && is_contiguous(value)) {
      const int producer = producer_[static_cast<size_t>(value.slot)];
      bool alias = true;
      const Step& step = plan_.steps[static_cast<size_t>(producer)];
      for (size_t i = 0; i < step.in.size(); ++i)
        for (size_t j = 0; j < step.out.size(); ++j)
          if (step.in[i].slot == home.slot && step.out[j].slot == value.slot)
            alias = alias && overwrites(step, i, j);
      if (may_take_over(value.slot, home.slot, producer, alias)) {
        merge(value.slot, home.slot);
        merged = true;
      }
    }
    if (!merged) {
      // A result in another parameter's slot moves out first: that slot may be overwritten too.
      PlanTensor from = slot.kind == SlotKind::kParam ? add_copy(value, at_end) : value;
      copies.emplace_back(from, home);
    }
  }
  for (auto& [from, home] : copies) {
    Step step;
    step.op = &copy_op, step.phase = Phase::kUpdate;
    step.in = {from}, step.out = {home};
    choose(step, at_end);
    step.bytes = 2 * home.type.bytes();
    plan_.steps.push_back(std::move(step));
    for (auto& r : plan_.results)
      if (same_view(r.tensor, from)) r.tensor = home;
  }
}

void Planner::overwrite_operands() {
  for (int i = 0; i < static_cast<int>(plan_.steps.size()); ++i) {
    Step& step = plan_.steps[static_cast<size_t>(i)];
    for (size_t j = 0; j < step.out.size(); ++j) {
      const int to_merge = step.out[j].slot;
      const Slot& out = plan_.slots[static_cast<size_t>(to_merge)];
      if (out.kind != SlotKind::kArena || out.bytes == 0 ||
          producer_[static_cast<size_t>(to_merge)] != i)
        continue;
      for (size_t k = 0; k < step.in.size(); ++k) {
        const int into = step.in[k].slot;
        const Slot& in = plan_.slots[static_cast<size_t>(into)];
        if (in.kind != SlotKind::kArena || in.last_step != i || in.bytes != out.bytes ||
            into == to_merge || !overwrites(step, k, j))
          continue;
        PlanTensor moved = step.out[j];
        moved.slot = into;
        if (!same_view(step.in[k], moved)) continue;
        bool others_agree = true;
        for (const PlanTensor& t : step.in)
          if (t.slot == into && !same_view(t, moved)) others_agree = false;
        for (size_t o = 0; o < step.out.size(); ++o)
          if (o != j && step.out[o].slot == into) others_agree = false;
        if (!others_agree) continue;
        // The merged slot keeps its own producer: it lives from there on.
        const int last = out.last_step;
        merge(to_merge, into);
        plan_.slots[static_cast<size_t>(into)].last_step = last;
        break;
      }
    }
  }
}

void Planner::finish_layout() {
  std::vector<Lifetime> lives;
  std::vector<size_t> which;
  for (size_t i = 0; i < plan_.slots.size(); ++i) {
    const Slot& s = plan_.slots[i];
    if (s.kind != SlotKind::kArena || s.bytes == 0) continue;
    lives.push_back({s.first_step, s.last_step, s.bytes});
    which.push_back(i);
  }
  const Layout layout = plan_offsets(lives);
  for (size_t i = 0; i < which.size(); ++i) plan_.slots[which[i]].offset = layout.offsets[i];
  for (Slot& s : plan_.slots)
    if (s.kind == SlotKind::kArena && s.bytes == 0) s.offset = 0;
  plan_.arena_bytes = layout.bytes;
  plan_.lower_bound_bytes = layout.lower_bound;
}

Status Planner::plan_regions(Step& step, const Node& n) {
  int64_t bytes = 0;
  for (FuncId r : n.regions) {
    PlanOptions options = options_;
    Plan sub = TEGULA_TRY(make_plan(module_, r, options));
    bytes += (sub.arena_bytes + kAlignment - 1) / kAlignment * kAlignment;
    step.regions.push_back(std::make_shared<const Plan>(std::move(sub)));
  }
  step.workspace = new_slot(bytes, cat("regions of ", n.op->name), n.phase);
  plan_.slots.back().is_workspace = true;
  return {};
}

Result<Plan> Planner::run() {
  plan_.name = f_.name;
  plan_.symbols = module_->symbols;
  plan_.module = module_;
  tensors_.resize(f_.values.size());
  for (size_t i = 0; i < f_.params.size(); ++i) {
    const Param& p = f_.params[i];
    PlanTensor t;
    t.type = f_.type(p.value);
    set_contiguous(t);
    t.slot = new_slot(t.type.bytes(), p.name, Phase::kForward);
    plan_.slots.back().kind = SlotKind::kParam;
    plan_.slots.back().param = static_cast<int>(i);
    producer_.back() = -1;
    tensors_[p.value] = t;
    plan_.params.push_back({p.name, p.role, p.donated_to, t});
    plan_.param_bytes += (t.type.bytes() + kAlignment - 1) / kAlignment * kAlignment;
  }
  if (options_.reorder) {
    for (NodeId n : schedule_nodes(f_)) {
      auto st = add_node(f_.nodes[n]);
      if (!st.ok()) return std::move(st).error();
    }
  } else {
    for (const Node& n : f_.nodes) {
      auto st = add_node(n);
      if (!st.ok()) return std::move(st).error();
    }
  }
  for (const Output& r : f_.results)
    plan_.results.push_back({r.name, Role::kInput, -1, tensors_[r.value]});
  find_lifetimes();
  donate();
  find_lifetimes();
  overwrite_operands();
  find_lifetimes();
  finish_layout();
  return std::move(plan_);
}

}  // namespace

Result<Plan> make_plan(std::shared_ptr<const Module> module, FuncId function,
                       const PlanOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  Planner planner(std::move(module), function, options);
  Plan plan = TEGULA_TRY(planner.run());
  plan.compile_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return plan;
}

const KernelDef* choose_kernel(const OpDef& op, const KernelQuery& query,
                               const PlanOptions& options) {
  if (!options.use_kernels) return nullptr;
  for (const auto& [name, kernel] : options.force_kernel)
    if (name == op.name)
      for (const KernelDef* k : all_kernels())
        if (k->name == kernel && k->op == op.name && k->supports(query)) return k;
  const KernelDef* best = nullptr;
  for (const KernelDef* k : all_kernels()) {
    if (k->op != op.name || k->device != options.device || k->min_isa > machine_isa()) continue;
    if (k->priority < 0 || (best && k->priority <= best->priority)) continue;
    if (k->supports(query)) best = k;
  }
  return best;
}

}  // namespace tegula
