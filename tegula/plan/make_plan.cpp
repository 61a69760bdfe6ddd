// make_plan: Function -> Plan, in four steps: order the nodes; turn them into launches on virtual
// slots (resolving views, inserting copies where a kernel cannot read strides); merge slots where a
// result may overwrite an operand or a donated parameter, or lie where a concat would put it; lay
// the rest into the arena.
#include <utility>

#include "tegula/base/algorithm.h"
#include "tegula/base/clock.h"
#include "tegula/base/saturating.h"
#include "tegula/ir/interpret.h"
#include "tegula/ir/regions.h"
#include "tegula/kernels/order.h"
#include "tegula/kernels/registry.h"
#include "tegula/ops/table.h"
#include "tegula/passes/lower_tile.h"
#include "tegula/plan/comm_table.h"
#include "tegula/plan/gather_alike.h"
#include "tegula/plan/memory.h"
#include "tegula/plan/order.h"
#include "tegula/plan/places.h"
#include "tegula/plan/plan.h"
#include "tegula/plan/planner.h"
#include "tegula/plan/tuning_table.h"
#include "tegula/plan/verify.h"
#include "tegula/plan/views.h"

namespace tegula {

#ifdef NDEBUG
constexpr bool kVerifies = false;
#else
constexpr bool kVerifies = true;
#endif

int Planner::new_slot(int64_t bytes, const std::string& name, Phase phase) {
  Slot s;
  s.bytes = bytes, s.name = name, s.phase = phase;
  plan_.slots.push_back(std::move(s));
  producer_.push_back(static_cast<int>(plan_.steps.size()));
  return static_cast<int>(plan_.slots.size()) - 1;
}

// Names the product that leaves 64 bits: of an op's loops; of a loop's rounds and what one takes.
static Error uncountable(const OpCall& call, const Step& step) {
  std::string product;
  const auto factor = [&](std::string_view name, const auto& n) {
    append(product, cat(product.empty() ? "" : " x ", name, " ", n));
  };
  if (step.regions.empty()) {
    if (const auto map = dim_map(call); map.ok())
      for (const Factor& f : map->factors) factor(f.name, f.size);
  } else {
    for (const auto& region : step.regions) factor(cat("FLOPs of ", region->name), region->flops());
    for (const auto& [name, value] : *call.attrs)  // the rounds are among them
      value.visit([&, &name = name](const auto& v) { factor(name, v); });
  }
  return {Code::kUnsupported,
          cat(step.op->name, ": its FLOPs, a product of ", product,
              ", are more than 64 bits count (", kUncountable, "): make one of these smaller"),
          step.loc};
}

// Its work is done at once, by a kernel that reads what others show.
void Planner::make_foreground(Step& step) {
  step.attrs.erase("background");
  if (step.workspace < 0) return;
  std::vector<int64_t> bounds;
  for (const Symbol& s : module_->symbols) bounds.push_back(s.bound);
  const auto in = refs_at(step.in, bounds), out = refs_at(step.out, bounds);
  int64_t& bytes = plan_.slots[step.workspace].bytes;
  bytes = step.kernel->workspace_bytes({&step.attrs, in, out, nullptr, &options_.target});
  if (bytes == 0) step.workspace = -1;
}

void Planner::end_background(ValueId holds) {
  for (size_t i = 0; i < in_background_.size();) {
    const auto [value, start] = in_background_[i];
    if (holds != kNone && value != holds) {
      ++i;
      continue;
    }
    in_background_.erase(in_background_.begin() + static_cast<std::ptrdiff_t>(i));
    if (static_cast<size_t>(start) + 1 == plan_.steps.size()) {  // nothing is beside it
      make_foreground(plan_.steps.back());
      continue;
    }
    Step done = plan_.steps[start];
    plan_.steps[start].starts = done.ends = n_background_++;
    done.flops = done.bytes = 0;
    plan_.steps.push_back(std::move(done));
  }
}

void Planner::end_older_sums() {
  const auto step_of = [&](int start) -> const Step& { return plan_.steps[start]; };
  const auto summed_bytes = [&](int start) {
    const Step& s = step_of(start);
    const int64_t bytes = s.in[0].type.bytes();
    return bytes > s.out[0].type.bytes() ? bytes : 0;
  };
  const int newest = in_background_.back().second;
  if (summed_bytes(newest) == 0) return;  // a gather, perhaps of another layer: no sum more
  if (std::string layer = layer_of(step_of(newest).scope); layer != sums_layer_) {
    sums_layer_ = std::move(layer);
    last_sums_bytes_ = std::exchange(sums_bytes_, 0);
  }
  sums_bytes_ += summed_bytes(newest);
  int64_t under_way = 0;
  for (const auto& [value, start] : in_background_) under_way += summed_bytes(start);
  std::vector<ValueId> older;
  for (const auto& [value, start] : in_background_) {
    if (under_way <= std::max(sums_bytes_, last_sums_bytes_)) break;
    const int64_t bytes = summed_bytes(start);
    if (bytes == 0 || layer_of(step_of(start).scope) == sums_layer_) continue;
    older.push_back(value), under_way -= bytes;
  }
  for (const ValueId v : older) end_background(v);
}

Step Planner::copy_step(const PlanTensor& from, const PlanTensor& to, const Node& cause) {
  Step step;
  step.op = &copy_op;
  step.phase = cause.phase, step.loc = cause.origin.loc;
  step.scope = module_->scopes[cause.origin.scope];
  step.in = {from}, step.out = {to};
  step.out[0].value = step.out[0].holds = from.value;
  Node node;
  node.op = &copy_op;
  choose(step, node);
  step.bytes = 2 * to.type.bytes();
  return step;
}

PlanTensor Planner::add_copy(const PlanTensor& from, const Node& cause) {
  if (!in_background_.empty()) end_background(from.holds);
  PlanTensor to;
  to.type = from.type;
  set_contiguous(to);
  to.slot = new_slot(to.type.bytes(), cat("copy for ", cause.op->name), cause.phase);
  plan_.steps.push_back(copy_step(from, to, cause));
  return plan_.steps.back().out[0];
}

// False: not even of a dense operand do strides show the results.
bool Planner::add_view(const Node& n, const OpCall& call) {
  for (uint32_t i = 0; i < n.n_outputs; ++i) {
    const PlanTensor& from = tensors_[n.inputs[n.inputs.size() > 1 ? i : 0]];
    auto view = view_of(call, i, from);
    if (!view.ok()) {
      PlanTensor dense = from;
      set_contiguous(dense);
      if (!view_of(call, i, dense).ok()) return false;
      view = view_of(call, i, add_copy(from, n));
    }
    view->value = n.output(i);
    tensors_[n.output(i)] = *view;
  }
  return true;
}

static bool has_symbol(const Step& step, int32_t symbol) {
  for (const auto* tensors : {&step.in, &step.out})
    for (const PlanTensor& t : *tensors)
      for (const Dim& d : t.type.shape)
        if (d.symbol == symbol) return true;
  return false;
}

// The best kernel that supports the step at the bounds, and at smaller extents too: what is dense
// at a bound may have gaps below it.
const KernelDef* Planner::kernel_for(const Step& step, const std::vector<PlanTensor>& operands,
                                     const Node& n) const {
  struct At {
    Attrs attrs;
    std::vector<TensorRef> in, out;
  };
  const auto extents = some_extents(module_->symbols, plan_.least);
  std::vector<At> at;
  std::vector<KernelQuery> queries;
  at.reserve(extents.size());
  for (const auto& e : extents) {
    const bool is_symbolic = !e.empty();
    auto out = refs_at(step.out, e);
    if (!queries.empty() && are_empty(out)) continue;  // not launched there
    at.push_back(
        {is_symbolic ? attrs_at(n.attrs, e) : Attrs(), refs_at(operands, e), std::move(out)});
    queries.push_back({is_symbolic ? &at.back().attrs : &n.attrs, at.back().in, at.back().out,
                       step.program.get(), &options_.target});
  }
  return choose_kernel(*n.op, queries, options_);
}

// The workspace that the kernel takes at the bounds, or at a smaller extent of a symbol: kernels go
// other ways for few rows, and around powers of two. A run checks the extents in between.
int64_t Planner::most_workspace(const Step& step, const Node& n,
                                const KernelQuery& at_bounds) const {
  int64_t most = step.kernel->workspace_bytes(at_bounds);
  std::vector<int64_t> extents;
  for (const Symbol& s : module_->symbols) extents.push_back(s.bound);
  const auto try_extents = [&] {
    const auto in = refs_at(step.in, extents), out = refs_at(step.out, extents);
    if (are_empty(out)) return;
    const Attrs attrs = attrs_at(n.attrs, extents);
    KernelQuery query = at_bounds;
    query.attrs = &attrs, query.in = in, query.out = out;
    most = std::max(most, step.kernel->workspace_bytes(query));
  };
  for (size_t s = 0; s < extents.size(); ++s) {
    if (!has_symbol(step, static_cast<int32_t>(s))) continue;
    const int64_t bound = extents[s], least = plan_.least[s].extent;
    for (int64_t e = least; e <= std::min<int64_t>(bound, 17); ++e) extents[s] = e, try_extents();
    for (int64_t power = 32; power <= bound; power *= 2)
      for (int64_t e = std::max(power - 1, least); e <= std::min(power + 1, bound); ++e)
        extents[s] = e, try_extents();
    extents[s] = bound;
  }
  return most;
}

void Planner::choose(Step& step, const Node& n) {
  std::vector<int64_t> bounds;
  for (const Symbol& s : module_->symbols) bounds.push_back(s.bound);
  const auto in = refs_at(step.in, bounds), out = refs_at(step.out, bounds);
  KernelQuery query{&n.attrs, in, out, step.program.get(), &options_.target};
  step.order = resolve_order(n.op->name, options_.target, query);
  step.kernel = kernel_for(step, step.in, n);
  if (step.kernel) step.order = step.kernel->order;  // of a forced one, its own
  if (options_.tunings && step.kernel && step.kernel->tuning)
    if (const TunedCall* known = options_.tunings->find(tuning_key(*step.kernel, query))) {
      query.tuning = known->tuning;
      if (step.kernel->supports(query)) step.tuning = known->tuning;
      query.tuning = step.tuning;
    }
  if (step.kernel && step.kernel->workspace_bytes)
    if (const int64_t bytes = most_workspace(step, n, query); bytes > 0) {
      step.workspace = new_slot(bytes, cat("workspace of ", step.kernel->name), n.phase);
      plan_.slots.back().is_workspace = true;
    }
}

namespace {
// The tensor as the tile program's iteration space sees it.
PlanTensor space_view(const PlanTensor& t, const SpaceView& view) {
  PlanTensor out = t;
  out.type.shape = view.shape;
  for (int d = 0; d < view.shape.rank(); ++d) {
    const int from = view.dim[d];
    out.stride[d] = from < 0 ? 0 : t.stride[from];
  }
  return out;
}
}  // namespace

Status Planner::plan_fused(Step& step, const Node& n) {
  auto& [attrs, lowered] = lowered_[n.regions[0]];
  if (!lowered.program || !(attrs == n.attrs)) {
    lowered = TEGULA_TRY(lower_tile(*module_, n.regions[0], n.attrs));
    attrs = n.attrs;
  }
  step.program = lowered.program;
  const RegionDef& def = *n.op->regions;
  for (size_t i = def.n_factors; i < step.in.size(); ++i)
    step.in[i] = space_view(step.in[i], lowered.in[i - def.n_factors + def.n_made]);
  for (size_t i = 0; i < step.out.size(); ++i)
    step.out[i] = space_view(step.out[i], lowered.out[i]);
  return {};
}

// A collective of the foreground by the algorithm that was measured to be best.
Status Planner::add_collective(const Node& n) {
  const int64_t bytes = std::max(f_.input_types(n)[0].bytes(), f_.output_types(n)[0].bytes());
  const std::string_view how =
      options_.comm->choose(n.op->name, n.attrs.i("ranks"), bytes, options_.adds_on_the_way);
  if (how.empty() || how == "direct") return add_step(n);
  Node chosen = n;
  chosen.attrs.set("algorithm", std::string(how));
  return add_step(chosen);
}

Status Planner::add_node(const Node& n) {
  const bool has_choice = options_.comm && n.op->collective && n.attrs.i("ranks") > 1 &&
                          !n.attrs.flag("background") && !n.attrs.find("algorithm");
  return has_choice ? add_collective(n) : add_step(n);
}

Status Planner::add_step(const Node& n) {
  const auto in_types = f_.input_types(n), out_types = f_.output_types(n);
  const OpCall call{n.op, &n.attrs, in_types, out_types, module_.get(), n.regions};
  if (n.op->is_view && add_view(n, call)) return {};
  if (!in_background_.empty())
    for (ValueId v : n.inputs) end_background(tensors_[v].holds);
  Step step;
  step.op = n.op, step.attrs = n.attrs, step.phase = n.phase;
  step.loc = n.origin.loc, step.scope = module_->scopes[n.origin.scope];
  step.in.reserve(n.inputs.size()), step.out.reserve(n.n_outputs);
  for (ValueId v : n.inputs) step.in.push_back(tensors_[v]);
  for (uint32_t i = 0; i < n.n_outputs; ++i) {
    PlanTensor t;
    t.type = out_types[i];
    t.value = t.holds = n.output(i);
    set_contiguous(t);
    step.out.push_back(t);
  }
  if (has_bodies(*n.op))
    TEGULA_TRY(plan_regions(step, n));
  else if (n.op->regions)
    TEGULA_TRY(plan_fused(step, n));
  if (step.regions.empty()) {
    const bool is_dense = std::all_of(step.in.begin(), step.in.end(), is_contiguous);
    if (options_.use_kernels && !is_dense && !kernel_for(step, step.in, n)) {
      // Perhaps a kernel wants contiguous operands.
      auto dense = step.in;
      for (PlanTensor& t : dense) set_contiguous(t);
      if (kernel_for(step, dense, n))
        for (PlanTensor& t : step.in)
          if (!is_contiguous(t)) t = add_copy(t, n);
    }
  }
  for (uint32_t i = 0; i < n.n_outputs; ++i) {
    step.out[i].slot = new_slot(out_types[i].bytes(), std::string(n.op->name), n.phase);
    PlanTensor& t = tensors_[n.output(i)] = step.out[i];
    t.type = out_types[i];
    set_contiguous(t);
  }
  if (step.regions.empty()) choose(step, n);
  const Bytes bytes = bytes_of(call);
  step.flops = flops_of(call), step.bytes = saturating_add(bytes.read, bytes.written);
  if (step.flops == kUncountable) return uncountable(call, step);
  if (n.op->is_view) step.bytes = call.in[0].bytes() + call.out[0].bytes();  // moved after all
  plan_.steps.push_back(std::move(step));
  if (n.op->collective && n.attrs.flag("background") && n.attrs.i("ranks") > 1) {
    in_background_.emplace_back(n.output(), static_cast<int>(plan_.steps.size()) - 1);
    end_older_sums();
  }
  return {};
}

void Planner::add_params() {
  for (size_t i = 0; i < f_.params.size(); ++i) {
    const Param& p = f_.params[i];
    PlanTensor t;
    t.type = f_.type(p.value);
    t.value = t.holds = p.value;
    set_contiguous(t);
    if (ports_) std::copy_n(ports_->params[i].stride, kMaxRank, t.stride);
    t.slot = new_slot(t.type.bytes(), p.name, Phase::kForward);
    plan_.slots.back().kind = SlotKind::kParam;
    plan_.slots.back().param = static_cast<int>(i);
    producer_.back() = -1;
    tensors_[p.value] = t;
    plan_.params.push_back({p.name, p.role, p.donated_to, t});
    plan_.param_bytes += (t.type.bytes() + kAlignment - 1) / kAlignment * kAlignment;
  }
}

Result<Plan> Planner::run() {
  plan_.name = f_.name;
  plan_.target = options_.target;
  plan_.symbols = module_->symbols;
  plan_.least = ports_ ? ports_->least : TEGULA_TRY(least_extents(*module_, f_));
  plan_.module = module_;
  tensors_.resize(f_.values.size());
  add_params();
  if (options_.reorder) {
    std::vector<NodeId> order = schedule_nodes(f_);
    if (options_.target.device == DeviceKind::kCuda) order = gather_alike(f_, std::move(order));
    for (const NodeId n : order) TEGULA_TRY(add_node(f_.nodes[n]));
  } else {
    for (const Node& n : f_.nodes) TEGULA_TRY(add_node(n));
  }
  end_background(kNone);
  for (const Output& r : f_.results)
    plan_.results.push_back({r.name, Role::kInput, -1, tensors_[r.value]});
  joins_launches_ = options_.target.device == DeviceKind::kCuda && is_inference(f_);
  find_homes();
  rescue_old_values();
  find_lifetimes();
  settle_results();
  find_lifetimes();
  join_in_place();
  find_lifetimes();
  overwrite_operands();
  find_lifetimes();
  finish_layout();
  TEGULA_TRY(check_totals(plan_));
  return std::move(plan_);
}

Result<Plan> make_plan(std::shared_ptr<const Module> module, FuncId function,
                       const PlanOptions& options) {
  const Stopwatch watch;
  Planner planner(std::move(module), function, options);
  Plan plan = TEGULA_TRY(planner.run());
  if (options.verify.value_or(kVerifies)) TEGULA_TRY(verify_plan(plan));
  plan.compile_ms = watch.ms();
  return plan;
}

const KernelDef* choose_kernel(const OpDef& op, std::span<const KernelQuery> queries,
                               const PlanOptions& options) {
  if (!options.use_kernels) return nullptr;
  for (const auto& [name, kernel] : options.force_kernel)
    if (name == op.name)
      for (const KernelDef* k : all_kernels())
        if (k->name == kernel && k->op == op.name && k->device == options.target.device &&
            supports_all(*k, queries))
          return k;
  return best_kernel(op.name, options.target, queries,
                     resolve_order(op.name, options.target, queries[0]));
}

}  // namespace tegula
