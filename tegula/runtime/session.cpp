#include "tegula/runtime/session.h"

#include "tegula/base/amounts.h"
#include "tegula/base/clock.h"
#include "tegula/base/denormals.h"
#include "tegula/base/saturating.h"
#include "tegula/ir/reference.h"
#include "tegula/kernels/peers.h"
#include "tegula/plan/regions.h"
#include "tegula/runtime/memory_watch.h"
#include "tegula/runtime/probe.h"
#include "tegula/runtime/regions.h"

namespace tegula {

Session::Session(std::shared_ptr<const Plan> plan, Rank& rank, void* arena)
    : plan_(std::move(plan)),
      rank_(&rank),
      base_(static_cast<uint8_t*>(arena)),
      param_data_(plan_->params.size(), nullptr),
      bound_(plan_->steps.size()),
      uses_(plan_->params.size()),
      needs_peers_(plan_->has_collectives()) {
  for (const Symbol& s : plan_->symbols) extents_.push_back(s.bound);
  if (needs_peers_) running_.reserve(static_cast<size_t>(plan_->n_background()));
  for (const Step& s : plan_->steps)
    if (s.starts >= 0 && rank.peers) rank.peers->errand(s.attrs.str("axis"), s.starts);
  if (rank.device) on_device_ = std::make_unique<DeviceSteps>(*plan_, rank, bound_, extents_);
  fetched_.resize(plan_->results.size());
  for (size_t i = 0; i < bound_.size(); ++i) bind_step(i);
  set_extents();
}

Result<std::unique_ptr<Session>> Session::create(std::shared_ptr<const Plan> plan, Rank& rank) {
  if (!plan) return invalid_argument("Session::create: there is no plan");
  const Target& here = rank.device ? rank.device->target() : Target::one_thread();
  TEGULA_TRY(named(cat("plan ", plan->name), plan->target.runs_on(here)));
  if (!rank.device && rank.pool.n_threads() > plan->target.n_threads)
    return invalid_argument(cat("plan ", plan->name, " was made for ", plan->target.n_threads,
                                " threads, the rank has ", rank.pool.n_threads(),
                                ": set PlanOptions::target"));
  Region arena = TEGULA_TRY(rank.device ? Region::on(rank.device, rank.memory, plan->arena_bytes)
                                        : Region::between_guards(rank.memory, plan->arena_bytes));
  auto s = std::make_unique<Session>(std::move(plan), rank, arena.data());
  s->arena_ = std::move(arena);
  if (memory_nodes() > 1 && !rank.device) s->touch_arena();
  return s;
}

void Session::touch_arena() {
  for (const Slot& slot : plan_->slots)
    if (slot.kind == SlotKind::kArena && slot.bytes > 0)
      first_touch(base_ + slot.offset, slot.bytes, rank_->pool);
}

Status Session::bind(std::string_view name, void* data) {
  const int p = plan_->find_param(name);
  if (p < 0) return invalid_argument(cat("plan ", plan_->name, " has no parameter ", name));
  bind(p, data);
  return {};
}

void Session::bind(int param, void* data) {
  if (param < 0 || static_cast<size_t>(param) >= param_data_.size()) {
    misuse_ = invalid_argument(cat("bind: plan ", plan_->name, " has ", param_data_.size(),
                                   " parameters, there is no number ", param));
    return;
  }
  void*& slot = param_data_[param];
  if (slot == data) return;
  slot = data;
  if (on_device_) on_device_->forget();
  for (const Use& u : uses_[param]) u.ref->data = static_cast<uint8_t*>(data) + u.byte_offset;
}

Status Session::bind_input(std::string_view name, const void* host) {
  const int p = plan_->find_param(name);
  if (p < 0) return invalid_argument(cat("plan ", plan_->name, " has no parameter ", name));
  // Who reads it only: a parameter that is written is no input.
  bind(p, on_device_ ? TEGULA_TRY(on_device_->mirror(p, host)) : const_cast<void*>(host));
  return {};
}

Status Session::bind_store(Store& store, NameInStore name, int64_t slot) {
  for (size_t i = 0; i < plan_->params.size(); ++i) {
    const auto& p = plan_->params[i];
    if (p.role == Role::kInput) continue;
    const std::string there = name ? name(p.name, slot) : p.name;
    TensorRef tensor = TEGULA_TRY(store.get(there, p.tensor.type));
    if (p.donated_to >= 0) tensor = TEGULA_TRY(store.own(there));
    if (memory_nodes() > 1 && !rank_->device && !store.is_borrowed(there))
      first_touch(tensor.data, p.tensor.type.bytes(), rank_->pool);
    bind(static_cast<int>(i), tensor.data);
  }
  return {};
}

TensorRef Session::locate(const PlanTensor& t) const {
  const Slot& s = plan_->slots[t.slot];
  auto* start =
      s.kind == SlotKind::kParam ? static_cast<uint8_t*>(param_data_[s.param]) : base_ + s.offset;
  TensorRef r;
  r.data = start + t.byte_offset, r.dtype = t.type.dtype, r.rank = t.type.shape.rank();
  for (int d = 0; d < r.rank; ++d) {
    r.shape[d] = t.type.shape[d].at(extents_);
    r.stride[d] = t.stride[d];
  }
  return r;
}

void Session::bind_step(size_t i) {
  const Step& step = plan_->steps[i];
  BoundStep& b = bound_[i];
  auto add = [&](const std::vector<PlanTensor>& tensors, std::vector<TensorRef>& refs,
                 std::vector<Type>& types) {
    refs.resize(tensors.size()), types.resize(tensors.size());
    for (size_t k = 0; k < tensors.size(); ++k) {
      refs[k] = locate(tensors[k]);
      const Slot& s = plan_->slots[tensors[k].slot];
      if (s.kind == SlotKind::kParam) uses_[s.param].push_back({&refs[k], tensors[k].byte_offset});
    }
  };
  add(step.in, b.in, b.in_types), add(step.out, b.out, b.out_types);
  b.attrs = step.attrs;
  if (step.kernel) b.launch = step.kernel->launch;
  if (step.workspace >= 0) b.workspace = base_ + plan_->slots[step.workspace].offset;
  for (const auto& region : step.regions)
    b.regions.push_back(std::make_unique<Session>(
        region, *rank_, static_cast<uint8_t*>(b.workspace) + kRegionArena));
}

// Shapes and attributes at the extents; strides and offsets are those of the bounds.
void Session::set_extents() {
  if (on_device_) on_device_->forget();
  for (size_t i = 0; i < bound_.size(); ++i) {
    const Step& step = plan_->steps[i];
    BoundStep& b = bound_[i];
    auto fix = [&](const std::vector<PlanTensor>& tensors, std::vector<TensorRef>& refs,
                   std::vector<Type>& types) {
      for (size_t k = 0; k < tensors.size(); ++k) {
        const Type& t = tensors[k].type;
        types[k] = {t.dtype, t.shape.at(extents_)};
        for (int d = 0; d < refs[k].rank; ++d) refs[k].shape[d] = types[k].shape[d].bound();
      }
    };
    fix(step.in, b.in, b.in_types), fix(step.out, b.out, b.out_types);
    b.is_empty = are_empty(b.out);
    for (const auto& [name, value] : step.attrs)
      if (const auto* dims = value.get_if<std::vector<Dim>>()) {
        auto& fixed = b.attrs.find(name)->get<std::vector<Dim>>();
        for (size_t d = 0; d < dims->size(); ++d) fixed[d] = (*dims)[d].at(extents_);
      }
  }
}

// Workspaces were sized at the bounds and at some smaller extents. No plan of ours is known to need
// more in between; a watched run asks, others need not pay for it token by token.
Status Session::check_workspaces() const {
  for (size_t i = 0; i < bound_.size(); ++i) {
    const Step& step = plan_->steps[i];
    const BoundStep& b = bound_[i];
    if (!step.kernel || step.workspace < 0 || !step.kernel->workspace_bytes || b.is_empty) continue;
    const int64_t have = plan_->slots[step.workspace].bytes;
    const int64_t need = step.kernel->workspace_bytes(
        {&b.attrs, b.in, b.out, step.program.get(), &plan_->target, step.tuning});
    if (need > have)
      return out_of_memory(cat("kernel ", step.kernel->name, " of step ", i, " (", step.op->name,
                               ") needs a workspace of ", need, " bytes at extents ", extents_,
                               ", the plan has ", have,
                               ": plan with these extents as bounds, and report this"));
  }
  return {};
}

Status Session::run(std::span<const int64_t> extents) {
  if (misuse_) return *misuse_;
  const size_t n = plan_->symbols.size();
  if (!extents.empty()) {
    if (extents.size() != n)
      return invalid_argument(
          cat("plan ", plan_->name, " has ", n, " symbols, got ", extents.size(), " extents"));
    TEGULA_TRY(check_extents(plan_->symbols, plan_->least, extents));
    if (!std::equal(extents.begin(), extents.end(), extents_.begin(), extents_.end())) {
      extents_.assign(extents.begin(), extents.end());
      set_extents();
      if (watch_) TEGULA_TRY(check_workspaces());
    }
  }
  for (size_t i = 0; i < param_data_.size(); ++i)
    if (!param_data_[i] && plan_->params[i].tensor.type.bytes() > 0)
      return invalid_argument(cat("parameter ", plan_->params[i].name, " of plan ", plan_->name,
                                  " has no memory: bind it"));
  if (needs_peers_ && !rank_->peers)
    return invalid_argument(
        cat("plan ", plan_->name, " is one rank's of several: run it in a RankGroup"));
  running_.clear();  // of a run that failed
  // Kernels count into the rank; what came in between, regions' counts too, is this run's.
  const Counters& all = rank_->counters;
  const int64_t math_before = all.math_flops, executed_before = all.executed_flops;
  if (on_device_) {
    TEGULA_TRY(run_on_device());
  } else {
    const bool is_plain = !stats_ && !watch_ && !observer && !needs_peers_;
    for (size_t i = 0; i < bound_.size(); ++i)
      if (is_plain)
        launch(i, nullptr);
      else
        TEGULA_TRY(run_step(i));
  }
  counters_.add(counted_since(all.math_flops, math_before),
                counted_since(all.executed_flops, executed_before));
  return {};
}

Status Session::run_on_device() {
  TEGULA_TRY(on_device_->prepare());
  if (stats_ || observer) {
    TEGULA_TRY(on_device_->send());
    for (size_t i = 0; i < bound_.size(); ++i) TEGULA_TRY(run_step(i));
    return {};
  }
  TEGULA_TRY(on_device_->run());
  for (size_t i = 0; i < bound_.size(); ++i)
    rank_->counters.add(on_device_->math_flops(i), on_device_->executed_flops(i));
  return {};
}

Status Session::run_step(size_t i) {
  const Counters& all = rank_->counters;
  const int64_t math = all.math_flops, executed = all.executed_flops;
  const double start = stats_ ? kernel_seconds(rank_->pool) : 0;
  const double began_s = stats_ ? steady_seconds() : 0;
  if (on_device_) {
    if (stats_) TEGULA_TRY(rank_->device->mark(0));
    TEGULA_TRY(on_device_->run_step(i));
    if (stats_) TEGULA_TRY(rank_->device->mark(1));
    rank_->counters.add(on_device_->math_flops(i), on_device_->executed_flops(i));
  } else if (!watch_) {
    needs_peers_ ? launch_among_peers(i) : launch(i, nullptr);
  } else {
    TEGULA_TRY(launch_watched(i));
  }
  if (stats_) {
    StepStats& s = (*stats_)[i];
    s.seconds += on_device_ ? TEGULA_TRY(rank_->device->ms_between_marks()) / 1e3
                            : kernel_seconds(rank_->pool) - start;
    s.began_s = began_s, s.ended_s = steady_seconds();
    s.math_flops += static_cast<double>(counted_since(all.math_flops, math));
    s.executed_flops += static_cast<double>(counted_since(all.executed_flops, executed));
  }
  if (plan_->steps[i].op->collective && rank_->peers && rank_->peers->has_failed())
    return io_error(cat("plan ", plan_->name, ": another rank failed"));
  if (observer) observer(observer_context, *this, i);
  return {};
}

void Session::capture(bool captures) {
  if (on_device_) on_device_->captures = captures;
}

Result<std::vector<DeviceSteps::Ready>> Session::take_ready(std::span<const int64_t> extents) {
  if (!on_device_ || extents.size() != extents_.size())
    return invalid_argument(cat("plan ", plan_->name, ": the steps of a body on a device at ",
                                extents_.size(), " extents, got ", extents.size(),
                                on_device_ ? "" : " on the CPU"));
  if (!std::equal(extents.begin(), extents.end(), extents_.begin(), extents_.end())) {
    extents_.assign(extents.begin(), extents.end());
    set_extents();
  }
  return on_device_->take();
}

Result<TensorRef> Session::fetch(std::string_view name) {
  const int r = plan_->find_result(name);
  if (r < 0) return invalid_argument(cat("plan ", plan_->name, " has no result ", name));
  if (on_device_) TEGULA_TRY(rank_->device->wait());
  return on_host(result(r), rank_->device, fetched_[r]);
}

void Session::watch(MemoryWatch* watch) {
  watch_ = watch;
  for (BoundStep& b : bound_)
    for (auto& region : b.regions) region->watch(watch);
}

// A step whose workspace is the watch's.
Status Session::launch_watched(size_t i) {
  BoundStep& b = bound_[i];
  const Step& step = plan_->steps[i];
  void* const planned = b.workspace;
  // Bytes that a collective brings come at any time, and others may take it from there.
  const bool is_apart = !step.kernel || !step.kernel->moves;
  if (step.kernel && planned && is_apart)
    b.workspace = watch_->open(planned, plan_->slots[step.workspace].bytes);
  rank_->counters.claimed_bytes = 0;
  needs_peers_ ? launch_among_peers(i) : launch(i, nullptr);
  b.workspace = planned;
  return watch_->close({plan_.get(), i, b.out, step.starts < 0 ? planned : nullptr,
                        rank_->counters.claimed_bytes, is_apart});
}

DeviceCall Session::call_of(size_t i, Peers* peers) {
  const Step& step = plan_->steps[i];
  const BoundStep& b = bound_[i];
  return {{&b.attrs, b.in, b.out, b.workspace, step.program.get(), &rank_->pool, &rank_->counters,
           step.tuning, &plan_->target},
          peers};
}

void Session::launch(size_t i, Peers* peers) {
  const Step& step = plan_->steps[i];
  BoundStep& b = bound_[i];
  if (b.is_empty) return;
  if (step.kernel) {
    const FlushDenormals flush;  // also what a kernel does outside its loops
    b.launch(call_of(i, peers));
  } else if (!b.regions.empty()) {
    const Status st = run_region_step({&step, b.in, b.out, b.workspace, b.regions, extents_});
    TEGULA_CHECK(st.ok(), step.op->name, ": ", st.error().message);
  } else {
    const int64_t flops = run_reference(*plan_, step, b, b.in, b.out);
    rank_->counters.add(flops, flops);
  }
}

int64_t run_reference(const Plan& plan, const Step& step, const BoundStep& bound,
                      std::span<const TensorRef> in, std::span<const TensorRef> out) {
  std::vector<FuncId> bodies;
  for (const auto& region : step.regions) bodies.push_back(region->function);
  const OpCall call{step.op,         &bound.attrs,      bound.in_types,
                    bound.out_types, plan.module.get(), bodies};
  const auto run = [&]<class S>(void (*reference)(RefArgs<S>&)) {
    RefArgs<S> args{{call, in, out}};
    reference(args);
  };
  at_own_precision(step.op->reference, in, out, run);
  return flops_of(call);
}

TensorRef Session::result(std::string_view name) const { return result(plan_->find_result(name)); }
TensorRef Session::result(int index) const {
  const auto i = static_cast<size_t>(index);
  return i < plan_->results.size() ? locate(plan_->results[i].tensor) : TensorRef{};
}
TensorRef Session::param(int index) const {
  const auto i = static_cast<size_t>(index);
  return i < plan_->params.size() ? locate(plan_->params[i].tensor) : TensorRef{};
}
TensorRef Session::step_output(size_t step, size_t index) const {
  const bool is_there = step < bound_.size() && index < bound_[step].out.size();
  return is_there ? bound_[step].out[index] : TensorRef{};
}

}  // namespace tegula
