#include "cli/plan_measure.h"

#include <span>

#include "cli/bench.h"
#include "tegula/base/algorithm.h"
#include "tegula/runtime/memory_watch.h"
#include "tegula/runtime/probe.h"
#include "tegula/train/loss_scale.h"

namespace tegula::cli {

namespace {

constexpr uint8_t kPoison[] = {0xa5, 0x5a};
constexpr double kLeast_s = 1;
constexpr size_t kLeastRuns = 3, kMostRuns = 100;

// The plans of a step in one arena, with weights as a training begins and inputs of no meaning.
class StepRun {
 public:
  StepRun(const TrainConfig& c, const Planned& p) : config_(c), rank_(c.threads), store_(rank_) {
    plans_.push_back(p.compiled.plan);
    if (p.update.plan) plans_.push_back(p.update.plan);
    work_.weights = p.functions.weights, work_.integers_below = c.model.vocab_size;
  }

  Status create() {
    int64_t bytes = 0;
    std::vector<const Plan*> all;
    for (const auto& plan : plans_) {
      bytes = std::max(bytes, plan->arena_bytes);
      all.push_back(plan.get());
    }
    arena_ = TEGULA_TRY(Region::between_guards(rank_.memory, bytes));
    watch_ = TEGULA_TRY(MemoryWatch::create(arena_, all, MemoryWatch::Workspaces::kInArena));
    for (const auto& plan : plans_) {
      sessions_.push_back(std::make_unique<Session>(plan, rank_, arena_.data()));
      TEGULA_TRY(sessions_.back()->bind_store(store_));
      TEGULA_TRY(bind_inputs(*sessions_.back()));
    }
    for (const auto& [name, entry] : store_) (void)set_value(work_, name, entry.ref);
    TEGULA_TRY(init_loss_scale(store_, config_.loss_scale));
    return {};
  }

  // Micro-batches, then the update.
  Result<double> step() {
    const double start = kernel_seconds(rank_.pool);
    for (int64_t i = 0; i < config_.accumulate; ++i) TEGULA_TRY(sessions_[0]->run());
    if (sessions_.size() > 1) TEGULA_TRY(sessions_[1]->run());
    return kernel_seconds(rank_.pool) - start;
  }

  Status watched_steps() {
    for (auto& s : sessions_) s->watch(watch_.get());
    for (const uint8_t value : kPoison) {
      watch_->begin(value, &rank_.pool);
      TEGULA_TRY(step());
      TEGULA_TRY(watch_->end());
    }
    for (auto& s : sessions_) s->watch(nullptr);
    return {};
  }

  int64_t math_flops() const { return rank_.counters.math_flops; }
  // As the trainer measures: what was claimed of the arena, and all that the store was given.
  int64_t peak_bytes() const {
    int64_t bytes = watch_->claimed_bytes();
    for (const auto& [name, entry] : store_)
      bytes += std::max(entry.region.bytes(), entry.region.touched(0));
    return bytes;
  }

 private:
  Status bind_inputs(Session& session) {
    const Plan& plan = session.plan();
    for (size_t i = 0; i < plan.params.size(); ++i) {
      const Plan::Port& port = plan.params[i];
      if (port.role != Role::kInput) continue;
      const Type& type = port.tensor.type;
      inputs_.push_back(TEGULA_TRY(Region::allocate(rank_.memory, type.bytes())));
      void* data = inputs_.back().data();
      if (!set_value(work_, port.name, contiguous_ref(data, type)))
        fill_parameter(type, data, i, work_.integers_below);
      session.bind(static_cast<int>(i), data);
    }
    return {};
  }

  const TrainConfig& config_;
  Rank rank_;
  Store store_;
  BenchWork work_;
  std::vector<std::shared_ptr<const Plan>> plans_;
  Region arena_;
  std::vector<Region> inputs_;
  std::unique_ptr<MemoryWatch> watch_;
  std::vector<std::unique_ptr<Session>> sessions_;
};

}  // namespace

Result<MeasuredStep> measure_step(const TrainConfig& config, const Planned& planned) {
  StepRun run(config, planned);
  TEGULA_TRY(run.create());
  TEGULA_TRY(run.watched_steps());
  MeasuredStep m;
  std::vector<double> seconds;
  for (double sum = 0;
       seconds.size() < kLeastRuns || (sum < kLeast_s && seconds.size() < kMostRuns);) {
    const int64_t before = run.math_flops();
    seconds.push_back(TEGULA_TRY(run.step()));
    m.flops = run.math_flops() - before;
    sum += seconds.back();
  }
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  m.step_s = *middle, m.runs = static_cast<int64_t>(seconds.size());
  m.peak_bytes = run.peak_bytes();
  return m;
}

}  // namespace tegula::cli
