
#include "tegula/base/algorithm.h"
#include "tegula/base/clock.h"
#include "tegula/base/median.h"
#include "tegula/ir/opdef.h"
#include "tegula/kernels/device.h"
#include "tegula/kernels/registry.h"
#include "tegula/runtime/measure.h"

namespace tegula {

namespace {

constexpr double kWarmUp_ms = 150;
// A kernel, and what lays its operands out: timed as launches. Of a model's steps a graph is
// replayed.
constexpr size_t kLoneSteps = 8;

using Set = std::vector<Region>;  // one per parameter

// For large floats the first kBlock elements are made, and the rest repeats them: the host would
// take minutes for billions.
Status fill_first(const Plan& plan, Rank& rank, size_t p, void* data, const OfDevice& more) {
  constexpr int64_t kBlock = int64_t{1} << 22;
  Type type = plan.params[p].tensor.type;
  const int64_t all = type.bytes();
  if (is_float(type.dtype) && type.shape.numel() > kBlock) type.shape = {kBlock};
  Region host = TEGULA_TRY(Region::allocate(rank.memory, std::max<int64_t>(type.bytes(), 1)));
  if (!more.set || !more.set(more.context, plan.params[p].name, contiguous_ref(host.data(), type)))
    fill_parameter(type, host.data(), p, more.integers_below);
  TEGULA_TRY(rank.device->copy(data, host.data(), type.bytes()));
  for (int64_t done = type.bytes(); done < all; done *= 2)
    TEGULA_TRY(
        rank.device->copy(static_cast<char*>(data) + done, data, std::min(done, all - done)));
  return {};
}

// The first set is filled; others are copies of it: only where they lie matters.
Result<std::vector<Set>> fill_sets(const Plan& plan, Rank& rank, int64_t cold_bytes,
                                   const OfDevice& more) {
  Device& device = *rank.device;
  std::vector<Set> sets;
  int64_t bytes = 0;
  do {
    Set set;
    for (size_t p = 0; p < plan.params.size(); ++p) {
      const Type& type = plan.params[p].tensor.type;
      set.push_back(
          TEGULA_TRY(Region::on(&device, rank.memory, std::max<int64_t>(type.bytes(), 1))));
      if (sets.empty()) {
        TEGULA_TRY(fill_first(plan, rank, p, set[p].data(), more));
      } else {
        TEGULA_TRY(device.copy(set[p].data(), sets[0][p].data(), type.bytes()));
      }
      bytes += type.bytes();
    }
    sets.push_back(std::move(set));
  } while (bytes < cold_bytes && bytes > 0);
  return sets;
}

}  // namespace

Status check_kernels(const Plan& plan, const Device& device) {
  TEGULA_TRY(plan.target.runs_on(device.target()));
  for (const Step& s : plan.steps) {
    if (s.kernel != nullptr && launch_of(*s.kernel) != nullptr) continue;
    const auto in = refs_at(s.in, {}), out = refs_at(s.out, {});
    const std::string why =
        refusals(s.op->name, DeviceKind::kCuda,
                 {.attrs = &s.attrs, .in = in, .out = out, .target = &plan.target});
    return unsupported(cat("op ", s.op->name,
                           " has no CUDA kernel for these operands and options: use --device cpu",
                           why.empty() ? "" : "; ", why));
  }
  return {};
}

void share_out(std::vector<StepStats>& stats) {
  const std::vector<StepStats> whole = stats;
  for (StepStats& s : stats)
    if (s.in_one.of >= 0) s.seconds = s.in_one.share * whole[s.in_one.of].seconds;
}

Result<Measured> measure_on_device(std::shared_ptr<const Plan> plan, Device& device,
                                   const MeasureOptions& options, const OfDevice& more) {
  TEGULA_TRY(check_kernels(*plan, device));
  Rank rank(device);
  const Region arena = TEGULA_TRY(Region::on(&device, rank.memory, plan->arena_bytes));
  const std::vector<Set> sets = TEGULA_TRY(fill_sets(*plan, rank, options.cold_bytes, more));
  std::vector<std::unique_ptr<Session>> sessions;
  for (const Set& set : sets) {
    sessions.push_back(std::make_unique<Session>(plan, rank, arena.data()));
    sessions.back()->capture(plan->steps.size() > kLoneSteps);
    for (size_t p = 0; p < set.size(); ++p)
      sessions.back()->bind(static_cast<int>(p), set[p].data());
  }
  size_t next = 0;
  const auto run = [&](int n) -> Result<double> {
    TEGULA_TRY(device.mark(0));
    for (int i = 0; i < n; ++i) TEGULA_TRY(sessions[next++ % sessions.size()]->run());
    TEGULA_TRY(device.mark(1));
    return device.ms_between_marks();
  };
  Measured out;
  const Stopwatch watch;
  TEGULA_TRY(run(1));
  out.first_ms = watch.ms();
  for (const auto& s : sessions) TEGULA_TRY(s->run());
  const double one_ms = std::max(1e-4, TEGULA_TRY(run(3)) / 3);
  const auto runs_of = [&](double ms) {
    return static_cast<int>(std::clamp(ms / one_ms, 1., 1e5));
  };
  TEGULA_TRY(run(runs_of(kWarmUp_ms)));
  std::vector<double> samples;
  const int n = runs_of(options.sample_ms);
  for (int i = 0; i < options.repeats; ++i) samples.push_back(TEGULA_TRY(run(n)) / n);
  out.ms_median = median(samples), out.ms_min = *std::min_element(samples.begin(), samples.end());
  if (more.by_step) {
    begin_trace(device, out.trace);
    TEGULA_TRY(sessions[0]->run());
    end_trace(device, out.trace);
    constexpr int kRuns = 3;
    more.by_step->assign(plan->steps.size(), {});
    sessions[0]->collect(more.by_step);
    for (int i = 0; i < kRuns; ++i) TEGULA_TRY(sessions[0]->run());
    sessions[0]->collect(nullptr);
    for (size_t i = 0; i < more.by_step->size(); ++i) {
      StepStats& s = (*more.by_step)[i];
      s.seconds /= kRuns, s.math_flops /= kRuns, s.executed_flops /= kRuns;
      s.launches = sessions[0]->launches(i);
    }
    const auto shares = TEGULA_TRY(sessions[0]->shares());
    for (size_t i = 0; i < shares.size(); ++i) (*more.by_step)[i].in_one = shares[i];
    share_out(*more.by_step);
  }
  return out;
}

}  // namespace tegula
