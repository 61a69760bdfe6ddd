
#include "cli/bench.h"
#include "cli/plan.h"
#include "tegula/base/algorithm.h"
#include "tegula/base/median.h"
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
  StepRun(const TrainConfig& c, const Planned& p)
      : config_(c), groups_(micro_groups(c)), rank_(c.threads), store_(rank_) {
    plans_.push_back(p.compiled.plan);
    for (const Compiled& rest : p.the_rest) plans_.push_back(rest.plan);
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
    const int64_t n_slots = groups_.n_slots();
    for (size_t i = 0; i < plans_.size(); ++i) {
      auto& sessions = sessions_.emplace_back();
      for (int64_t slot = 0; slot < (i == kStep ? n_slots : i == kJoin ? n_slots - 1 : 1); ++slot) {
        sessions.push_back(std::make_unique<Session>(plans_[i], rank_, arena_.data()));
        TEGULA_TRY(sessions.back()->bind_store(store_, name_at_slot, slot));
        TEGULA_TRY(bind_inputs(*sessions.back()));
      }
    }
    for (const auto& [name, entry] : store_) (void)set_value(work_, name, entry.ref);
    TEGULA_TRY(init_loss_scale(store_, config_.loss_scale));
    return {};
  }

  // Micro-batches, then the update.
  Result<double> step() {
    const double start = kernel_seconds(rank_.pool);
    for (int64_t i = 0; i < groups_.n; ++i) {
      const auto slot = static_cast<size_t>(groups_.slot_of(i));
      TEGULA_TRY(sessions_[kStep][slot]->run());
      for (size_t j = 1; j <= static_cast<size_t>(groups_.joins_after(i)); ++j)
        TEGULA_TRY(sessions_[kJoin][slot - j]->run());
    }
    if (sessions_.size() > kUpdate) TEGULA_TRY(sessions_[kUpdate][0]->run());
    return kernel_seconds(rank_.pool) - start;
  }

  Status watched_steps() {
    watch(watch_.get());
    for (const uint8_t value : kPoison) {
      watch_->begin(value, &rank_.pool);
      TEGULA_TRY(step());
      TEGULA_TRY(watch_->end());
    }
    watch(nullptr);
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
  static constexpr size_t kStep = 0, kUpdate = 1, kJoin = 2;  // parts_of_step
  void watch(MemoryWatch* watch) {
    for (auto& of_plan : sessions_)
      for (auto& s : of_plan) s->watch(watch);
  }
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
  const MicroGroups groups_;
  Rank rank_;
  Store store_;
  BenchWork work_;
  std::vector<std::shared_ptr<const Plan>> plans_;
  Region arena_;
  std::vector<Region> inputs_;
  std::unique_ptr<MemoryWatch> watch_;
  std::vector<std::vector<std::unique_ptr<Session>>> sessions_;  // of each plan and slot
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
  m.step_s = median(seconds), m.runs = static_cast<int64_t>(seconds.size());
  m.peak_bytes = run.peak_bytes();
  return m;
}

}  // namespace tegula::cli
