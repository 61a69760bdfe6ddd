#include "tegula/runtime/device_steps.h"

#include <atomic>
#include <cstdio>
#include <cstring>

#include "tegula/base/amounts.h"
#include "tegula/base/clock.h"
#include "tegula/base/denormals.h"
#include "tegula/base/range.h"
#include "tegula/base/round.h"
#include "tegula/ir/opdef.h"
#include "tegula/kernels/order.h"
#include "tegula/kernels/registry.h"
#include "tegula/plan/memory.h"
#include "tegula/runtime/regions.h"

namespace tegula {

// Puts a loop's rounds down, one after another.
class DeviceSteps::Recorder final : public RegionRunner {
 public:
  Recorder(DeviceSteps& steps, Ready& to) : steps_(steps), to_(to) {}
  Status run(Session& region, std::span<const int64_t> extents) override {
    for (Ready& r : TEGULA_TRY(region.take_ready(extents))) add(std::move(r));
    return {};
  }
  Status copy(const TensorRef& from, const TensorRef& to) override {
    add(TEGULA_TRY(steps_.prepare_copy(from, to)));
    return {};
  }
  Result<bool> read(const void*) override {
    return internal_error("what the data decides is not known before it is there");
  }

 private:
  void add(Ready ready) {
    for (auto& l : ready.launches) to_.launches.push_back(std::move(l));
    to_.math_flops += ready.math_flops, to_.executed_flops += ready.executed_flops;
  }
  DeviceSteps& steps_;
  Ready& to_;
};

// Enqueues them, and waits for what decides.
class DeviceSteps::AtOnce final : public RegionRunner {
 public:
  explicit AtOnce(DeviceSteps& steps) : steps_(steps) {}
  Status run(Session& region, std::span<const int64_t> extents) override {
    return region.run(extents);
  }
  Status copy(const TensorRef& from, const TensorRef& to) override {
    const Ready ready = TEGULA_TRY(steps_.prepare_copy(from, to));
    for (const auto& l : ready.launches) TEGULA_TRY(l->enqueue(steps_.device_.stream()));
    return {};
  }
  Result<bool> read(const void* flag) override {
    bool value = false;
    TEGULA_TRY(steps_.device_.wait());
    TEGULA_TRY(steps_.device_.copy(&value, flag, 1));
    return value;
  }

 private:
  DeviceSteps& steps_;
};

DeviceSteps::DeviceSteps(const Plan& plan, Rank& rank, std::vector<BoundStep>& steps,
                         const std::vector<int64_t>& extents)
    : plan_(plan),
      rank_(rank),
      device_(*rank.device),
      steps_(steps),
      extents_(extents),
      ready_(steps.size()) {
  for (const Step& s : plan.steps) {
    on_device_.push_back(is_on_device(s));
    has_host_steps_ = has_host_steps_ || !on_device_.back();
  }
}

bool DeviceSteps::is_on_device(const Step& step) const {
  if (step.kernel) return true;
  if (step.regions.empty() || is_decided_by_data(*step.op)) return false;
  return all_of(step.regions, [&](const auto& region) {
    return all_of(region->steps, [&](const Step& s) { return is_on_device(s); });
  });
}

DeviceSteps::~DeviceSteps() {
  (void)device_.wait();  // what still runs uses the memory of this and of the session
  device_.release_pinned(pinned_);
}

// Room for all parameters is taken with the first.
Result<void*> DeviceSteps::mirror(int param, const void* host) {
  if (!pinned_) {
    int64_t bytes = 0;
    for (size_t p = 0; p < plan_.params.size(); ++p) {
      if (plan_.params[p].role != Role::kInput) continue;
      const int64_t size = plan_.params[p].tensor.type.bytes();
      mirrors_.push_back({static_cast<int>(p), nullptr, bytes, size});
      bytes += round_up(size, kAlignment);
    }
    mirrored_ = TEGULA_TRY(Region::on(&device_, rank_.memory, bytes));
    pinned_ = TEGULA_TRY(device_.allocate_pinned(bytes));
    std::memset(pinned_, 0, static_cast<size_t>(bytes));
  }
  for (Mirror& m : mirrors_)
    if (m.param == param) {
      m.host = host;
      return static_cast<void*>(static_cast<uint8_t*>(mirrored_.data()) + m.offset);
    }
  return invalid_argument(cat("parameter ", plan_.params[static_cast<size_t>(param)].name,
                              " of plan ", plan_.name, " is no input: bind it to the device's"));
}

void DeviceSteps::forget() { is_ready_ = false; }

Status DeviceSteps::prepare() {
  if (is_ready_) return {};
  TEGULA_TRY(device_.wait());
  graph_ = nullptr, n_runs_ = 0;
  in_one_.clear();
  TEGULA_TRY(compile_all());
  for (size_t i = 0; i < steps_.size(); ++i) TEGULA_TRY(prepare_step(i));
  TEGULA_TRY(join_launches());
  is_ready_ = true;
  return {};
}

// Compiles, on all threads, before the first run alone: the few kernels that other extents take are
// compiled where their steps are made ready, and there errors come up again, too.
Status DeviceSteps::compile_all() {
  if (is_compiled_) return {};
  std::vector<std::pair<const KernelLaunch*, size_t>> work;
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = plan_.steps[i];
    if (!step.kernel || steps_[i].is_empty || !is_on_device(step)) continue;
    const KernelLaunch* launch = launch_of(*step.kernel);
    if (launch && launch->compile) work.emplace_back(launch, i);
  }
  std::atomic<int> n_compiled = 0, n_left = 0;
  const Stopwatch watch;
  ThreadPool pool(work.size() > 1 ? 0 : 1);  // the rank's has no work beside a device
  pool.parallel_for(static_cast<int64_t>(work.size()), [&](int64_t k, int) {
    const auto& [launch, step] = work[static_cast<size_t>(k)];
    if (rank_.compiles_until_s > 0 && steady_seconds() > rank_.compiles_until_s) {
      ++n_left;
      return;
    }
    const Result<bool> is_new = launch->compile(call_of(step));
    if (is_new.ok() && *is_new) ++n_compiled;
  });
  if (n_compiled > 0 && watch.seconds() > 1)
    std::fprintf(stderr, "note: compiled %d kernels in %.1f s; the next start finds them\n",
                 n_compiled.load(), watch.seconds());
  if (n_left > 0)
    return unsupported(cat("plan ", plan_.name, ": the time is over before ", n_left.load(),
                           " of its steps have their kernels"));
  is_compiled_ = true;
  return {};
}

DeviceCall DeviceSteps::call_of(size_t i) {
  const Step& step = plan_.steps[i];
  const BoundStep& b = steps_[i];
  DeviceCall call;
  call.attrs = &b.attrs, call.in = b.in, call.out = b.out, call.workspace = b.workspace;
  call.program = step.program.get(), call.tuning = step.tuning, call.target = &plan_.target;
  return call;
}

Result<std::vector<DeviceSteps::Ready>> DeviceSteps::take() {
  TEGULA_TRY(prepare());
  is_ready_ = false;
  in_one_.clear();
  std::vector<Ready> taken(ready_.size());
  std::swap(taken, ready_);
  return taken;
}

Result<DeviceSteps::Ready> DeviceSteps::prepare_kernel(const KernelDef& kernel, DeviceCall& call) {
  const KernelLaunch* launch = launch_of(kernel);
  if (!launch)
    return unsupported(cat("plan ", plan_.name, " needs the kernel ", kernel.name,
                           ", which this plug-in does not have: build both together"));
  Counters counters;
  call.pool = &rank_.pool, call.counters = &counters, call.target = &plan_.target;
  call.peers = rank_.peers;
  Ready ready;
  ready.launches.push_back(TEGULA_TRY(launch->prepare(call)));
  ready.math_flops = counters.math_flops, ready.executed_flops = counters.executed_flops;
  return ready;
}

Result<DeviceSteps::Ready> DeviceSteps::prepare_copy(const TensorRef& from, const TensorRef& to) {
  static const Attrs kNone;
  const KernelQuery query{&kNone, {&from, 1}, {&to, 1}, nullptr, &plan_.target};
  const KernelDef* kernel = best_kernel("copy", plan_.target, {&query, 1});
  if (!kernel) return unsupported(cat("no kernel of ", plan_.target.name, " copies"));
  DeviceCall call;
  call.attrs = &kNone, call.in = query.in, call.out = query.out;
  return prepare_kernel(*kernel, call);
}

Status DeviceSteps::prepare_step(size_t i) {
  const Step& step = plan_.steps[i];
  const BoundStep& b = steps_[i];
  ready_[i] = {};
  if (b.is_empty || !on_device_[i]) return {};
  if (!step.kernel) {
    Recorder recorder(*this, ready_[i]);
    return run_region_step({&step, b.in, b.out, b.workspace, b.regions, extents_}, &recorder);
  }
  DeviceCall call = call_of(i);
  ready_[i] = TEGULA_TRY(named(cat("step ", i, " of plan ", plan_.name, " (", step.op->name, ")"),
                               prepare_kernel(*step.kernel, call)));
  return {};
}

int64_t DeviceSteps::launches(size_t step) const {
  int64_t n = 0;
  for (const auto& l : ready_[step].launches) n += l->launches();
  return n;
}

void DeviceSteps::fill_pinned() {
  for (const Mirror& m : mirrors_)
    if (m.host)
      std::memcpy(static_cast<uint8_t*>(pinned_) + m.offset, m.host, static_cast<size_t>(m.bytes));
}

Status DeviceSteps::send() {
  if (!pinned_) return {};
  if (is_sent_) TEGULA_TRY(device_.wait());
  fill_pinned();
  is_sent_ = true;
  return device_.copy_later(mirrored_.data(), pinned_, mirrored_.bytes());
}

Status DeviceSteps::run_step(size_t i) {
  if (steps_[i].is_empty) return {};
  const Step& step = plan_.steps[i];
  if (on_device_[i]) {
    for (const auto& l : ready_[i].launches) TEGULA_TRY(l->enqueue(device_.stream()));
    return {};
  }
  if (step.regions.empty()) return run_on_host(i);
  AtOnce at_once(*this);
  const BoundStep& b = steps_[i];
  return run_region_step({&step, b.in, b.out, b.workspace, b.regions, extents_}, &at_once);
}

Status DeviceSteps::run_on_host(size_t i) {
  const Step& step = plan_.steps[i];
  BoundStep& b = steps_[i];
  TEGULA_TRY(device_.wait());
  std::vector<std::vector<uint8_t>> buffers(b.in.size() + b.out.size());
  std::vector<TensorRef> in, out;
  for (const TensorRef& t : b.in)
    in.push_back(TEGULA_TRY(on_host(t, &device_, buffers[in.size()])));
  // Memory that lies between the elements of a result stays as it is.
  for (const TensorRef& t : b.out)
    out.push_back(TEGULA_TRY(on_host(t, &device_, buffers[in.size() + out.size()])));
  Counters counters;
  if (!run_cpu_kernel(i, in, out, counters)) {
    const int64_t flops = run_reference(plan_, step, b, in, out);
    counters.add(flops, flops);
  }
  ready_[i].math_flops = counters.math_flops, ready_[i].executed_flops = counters.executed_flops;
  for (size_t k = 0; k < out.size(); ++k) TEGULA_TRY(to_device(out[k], b.out[k], device_));
  return {};
}

// False: the CPU has none for it.
bool DeviceSteps::run_cpu_kernel(size_t i, std::span<const TensorRef> in,
                                 std::span<const TensorRef> out, Counters& counters) {
  const Step& step = plan_.steps[i];
  const Target& here = Target::one_thread();
  const KernelQuery query{&steps_[i].attrs, in, out, step.program.get(), &here};
  const KernelDef* kernel =
      best_kernel(step.op->name, here, {&query, 1}, resolve_order(step.op->name, here, query));
  if (!kernel) return false;
  const int64_t bytes = kernel->workspace_bytes ? kernel->workspace_bytes(query) : 0;
  struct alignas(kAlignment) Line {
    std::byte bytes[kAlignment];
  };
  std::vector<Line> workspace(static_cast<size_t>(ceil_div(bytes, kAlignment)));
  DeviceCall call;
  call.attrs = query.attrs, call.in = in, call.out = out, call.workspace = workspace.data();
  call.program = query.program, call.pool = &rank_.pool, call.counters = &counters;
  call.target = &here, call.peers = rank_.peers;
  const FlushDenormals flush;
  kernel->launch(call);
  return true;
}

Status DeviceSteps::enqueue_all() {
  for (size_t i = 0; i < steps_.size(); ++i) TEGULA_TRY(run_step(i));
  return {};
}

Status DeviceSteps::run() {
  if (!captures || has_host_steps_ || n_runs_++ == 0) {
    TEGULA_TRY(send());
    return enqueue_all();
  }
  if (!graph_) {
    TEGULA_TRY(device_.wait());
    TEGULA_TRY(device_.begin_capture());
    Status st =
        pinned_ ? device_.copy_later(mirrored_.data(), pinned_, mirrored_.bytes()) : Status{};
    if (st.ok()) st = enqueue_all();
    auto graph = device_.end_capture();
    TEGULA_TRY(std::move(st));
    graph_ = TEGULA_TRY(std::move(graph));
    is_sent_ = false;
  }
  if (is_sent_) TEGULA_TRY(device_.wait());
  fill_pinned();
  is_sent_ = pinned_ != nullptr;
  return graph_->enqueue(device_.stream());
}

}  // namespace tegula
