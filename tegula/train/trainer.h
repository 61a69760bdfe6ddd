// Trainer: compiles a step, runs it, evaluates, saves and resumes.
//
// Everything it does is a function of (config, data): two runs, or one run stopped and resumed at
// any save, end with the same bits.
#pragma once

#include <atomic>
#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tegula/base/memory.h"
#include "tegula/io/checkpoint.h"
#include "tegula/io/file.h"
#include "tegula/io/text_data.h"
#include "tegula/runtime/compile_stages.h"
#include "tegula/runtime/rank_group.h"
#include "tegula/runtime/trace.h"
#include "tegula/text/tokenizer.h"
#include "tegula/train/batches.h"
#include "tegula/train/checkpoint.h"
#include "tegula/train/config.h"
#include "tegula/train/data.h"
#include "tegula/train/loss_scale.h"
#include "tegula/train/masking.h"
#include "tegula/train/rank_run.h"
#include "tegula/train/shared_save.h"
#include "tegula/train/step.h"

namespace tegula {

// In a run with --timeline on a device, the step that is traced: those before it are watched, or
// timed launch by launch.
inline constexpr int64_t kTracedStep = 5;

struct StepReport {
  int64_t step = 0;  // 1-based
  double loss = 0;
  double grad_norm = 0;
  double lr = 0;
  double step_ms = 0;
  double tokens_per_s = 0;
  // In f16 (train/loss_scale.h): what the step's loss was multiplied by; it changed nothing, since
  // gradients overflowed, and grad_norm is not finite.
  double loss_scale = 1;
  bool is_skipped = false;
};

struct EvalReport {
  int64_t step = 0;
  double val_loss = NAN;    // over the whole validation split, nats a token
  double train_loss = NAN;  // over rows from all of the training split, without dropout
  // val_loss by the bytes of the text, whatever its tokens; NaN: of masked tokens.
  double bits_per_byte = NAN;
  bool is_best = false;  // no val_loss of this run was lower
};

// The figures of a training step, by one rank.
struct RankSummary {
  int64_t flops_planned = 0, flops_counted = 0, flops_executed = 0;
  int64_t sent_bytes_planned = 0, sent_bytes_counted = 0;  // to other ranks
  int64_t peak_bytes_planned = 0, peak_bytes_measured = 0, peak_bytes_written = 0;
};

// Numbers of a step are those of all ranks together; peaks those of the rank that needs most.
struct TrainSummary {
  int64_t steps = 0;
  double train_loss = NAN;  // of the last step; NaN: there was none
  EvalReport eval;          // the last one
  double best_val_loss = NAN;
  int64_t best_step = -1;
  LossScaleState loss_scale;             // after the last step
  double tokens_per_s = 0, step_ms = 0;  // of the median step
  int64_t params = 0;
  int64_t flops_per_step_planned = 0, flops_per_step_counted = 0, flops_per_step_executed = 0;
  int64_t flops_per_step_recomputed = 0;  // of those planned (train/utilisation.h)
  int64_t bytes_per_step_planned = 0;
  // Arena, weights and optimizer state: as planned; where what was claimed ends, proven by what
  // lies behind; where the last bytes lie that were really written, at most that.
  int64_t peak_bytes_planned = 0, peak_bytes_measured = 0, peak_bytes_written = 0;
  int64_t lower_bound_bytes = 0;
  // The whole process by the operating system and the C library, at the end, with all still held,
  // and before the trainer: pages touched (and the most there ever were), bytes allocated.
  int64_t process_touched_bytes = 0, process_touched_before_bytes = 0, process_peak_bytes = 0;
  int64_t process_allocated_bytes = 0, process_allocated_before_bytes = 0;
  double compile_ms = 0;
  std::string device;      // the target's name
  int64_t host_steps = 0;  // of all plans: steps that the device has no kernel for
  // On a device: what it has less free than before, by its driver: the peak, what inputs and other
  // plans take, loaded kernels and the driver's own share.
  int64_t device_taken_bytes = 0;
  bool interrupted = false;
  std::vector<RankSummary> ranks;
  std::vector<LinkUse> links;  // of the first rank, over all steps: what was brought to it
  // The share of the links' time that nobody waited for; NaN: nothing was brought.
  double hidden() const;
};

// Explains what the process touched besides what was measured, in a sentence or two.
std::string explain_process_memory(const TrainSummary& s);

class Trainer {
 public:
  // `on_planned` is called when the plans are made and no memory is taken yet.
  // With a segment it has the ranks of one process of several: each makes and runs a trainer of the
  // same configuration; the first one's speaks, locks and publishes, and all end alike.
  static Result<std::unique_ptr<Trainer>> create(TrainConfig config,
                                                 void (*on_planned)(const Trainer&) = nullptr,
                                                 Segment* segment = nullptr);

  // Trains to the last step, or until `stop` is set (finishes the step, saves, does not evaluate).
  // A step whose loss or gradient is not finite ends the run with an error that names the first op
  // at fault, unless its loss was scaled and may be scaled by less; nothing is saved, since the
  // weights before it lead there again: the last good checkpoint stays.
  Result<TrainSummary> run(const std::atomic<bool>& stop);

  // Loss over the whole validation split, every full sequence of it once, and over as many of the
  // training split (at most 32 batches), evenly spread; NaN when stopped. Error: a loss that is not
  // finite, with the first op at fault.
  Result<EvalReport> evaluate(const std::atomic<bool>& stop);
  Status save();

  // Called after each step and each evaluation; may be null.
  void (*on_step)(void* context, const StepReport&) = nullptr;
  void (*on_eval)(void* context, const EvalReport&) = nullptr;
  void* context = nullptr;

  const TrainConfig& config() const { return config_; }
  // A step's plan, or a micro step's where gradients are accumulated; cost() is of the whole step.
  // This process's first rank's; of a pipeline that of the part that it runs first.
  const Plan& plan() const {
    if (!stages_) return *plans_[0].plans[0];
    const PlannedProgram& first = *stages_->ranks[static_cast<size_t>(group_.first_rank())];
    return *first.plans[static_cast<size_t>(first.order[0].part)];
  }
  const StepCost& cost() const { return cost_; }
  int64_t recomputed_flops() const { return recomputed_flops_; }  // of cost()
  const std::vector<WeightSpec>& weights() const { return functions_.weights; }
  const std::vector<StepStats>& step_stats() const { return ranks_[0]->stats[kStep]; }
  // With --timeline on several ranks: when each of theirs ran last, as texts (train/timeline.h).
  const std::vector<std::string>& rank_bars() const { return rank_bars_; }
  const CompiledStages* stages() const { return stages_ ? &*stages_ : nullptr; }
  int64_t timed_steps() const { return timed_steps_; }
  // With --timeline, on a device: step kTracedStep of the run, a replayed graph. And how many
  // launches each step of plan() has in it.
  const RunTrace& trace() const { return trace_; }
  std::vector<int64_t> launches() const;
  Store& store() { return ranks_[0]->store; }  // this process's first rank's
  // Whether this process has rank 0, and says what there is to say.
  bool is_speaker() const { return group_.first_rank() == 0; }
  int64_t parameters() const { return parameter_count(functions_.weights); }
  int64_t next_step() const { return step_; }
  // The first tokens of the validation split, as text.
  std::string validation_text(int64_t n_tokens) const;
  std::string data_summary;
  // The facts that the user should know of a resumed run, a line each: damaged checkpoints that
  // were passed over, flags or data that differ.
  std::vector<std::string> notes;

 private:
  static constexpr size_t kStep = 0, kEval = 1, kUpdate = 2, kJoin = 3;  // of plans_ and sessions
  explicit Trainer(TrainConfig config) : config_(std::move(config)), group_(config_.mesh) {}
  Trainer(TrainConfig config, Segment& segment)
      : config_(std::move(config)), group_(config_.mesh, segment) {}
  int64_t n_ranks() const { return config_.mesh.n_ranks(); }
  bool is_alone() const { return n_ranks() == 1; }
  // This process's run of a rank, and the plan of one.
  RankRun& run_of(int64_t rank) { return *ranks_[static_cast<size_t>(rank - group_.first_rank())]; }
  int64_t micro_batch(int64_t rank, int64_t i) const;
  std::vector<const Plan*> plans_of_step(int64_t rank) const;
  // One of a plan, or one for each slot that it runs on.
  int64_t n_sessions(size_t which) const;
  Result<std::string> lock_output();
  Status find_origin();
  Status agree_on_run(const Target& target);
  Status count_costs(const Target& target);
  Result<bool> is_stopped(const std::atomic<bool>& stop);
  Status save_shares();
  SharedSave::State state_of_all() const;
  Status exchange_counts(TrainSummary& sum);
  Status open_origin();
  Status load_data();
  Status prepare_texts();
  Status load_batches();
  Status compile_plans();
  Status allocate();
  Status init_or_resume();
  Status bind_all();
  Status one_step(StepReport& report);
  Status one_step_of_all(StepReport& report);
  Session& last_session();
  std::vector<Session*> main_sessions() const;  // of plan()
  Result<float> eval_loss();
  Status follow_loss_scale(StepReport& report);
  Result<double> split_loss(std::span<const int32_t> tokens, int64_t most_rows,
                            const std::atomic<bool>& stop);
  Status evaluate_and_keep(const std::atomic<bool>& stop, TrainSummary& sum);
  Result<double> run_micro_steps();
  Result<double> mean_loss(const std::vector<float>& own);
  void fill_inputs(int64_t i);
  void fill_micro_batch(int64_t index);
  Result<std::string> find_fault(size_t which, int64_t n_micro);
  Error weight_not_finite(const std::string& name) const;
  const Sharding& sharding_of_state(std::string_view name) const;
  Error not_finite(const StepReport& report);
  Error loss_not_finite(std::span<const int32_t> tokens, double loss);
  std::string what_is_kept() const;
  Error in_step(Error e) const;
  Status make_watches(RankRun& run, int64_t rank);
  // The session of every rank, all at once.
  Status run_all(size_t which, int64_t slot = 0);
  void give_batch(size_t which, int64_t rank);
  Status watched_step(StepReport& report, int64_t done);
  // For a pipeline (trainer_pipeline.cpp).
  bool is_staged() const { return stages_.has_value(); }
  Status compile_stages(const Target& target);
  Status agree_on_stages();
  std::set<std::string, std::less<>> state_elsewhere() const;
  Status allocate_stages(RankRun& run, int64_t rank);
  Status bind_stages();
  // The rank's own i-th micro-batch of a step; -1: the batch of an evaluation.
  void give_stages(int64_t rank, int64_t i);
  Status run_stages(bool is_step);
  Result<std::vector<float>> told_by_stages(bool is_step);
  Result<LossScaleState> scale_told_by_stages();
  Status one_step_in_stages(StepReport& report);
  Result<std::string> find_fault_in_stages(bool is_step);
  static Status measure_flows(RankRun& run, uint8_t poison);
  void measure_memory(TrainSummary& sum) const;
  void time_steps(bool is_timed);
  Status exchange_bars();
  int64_t sent_bytes_a_step(int64_t rank) const;  // planned

  TrainConfig config_;
  ProcessMemory before_ = process_memory(0);
  std::unique_ptr<FileLock> lock_;          // of config_.out, while this lives
  std::shared_ptr<const ModelFiles> from_;  // what weights come from; null: they are random
  DataHashes hashes_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<TextFile> texts_;  // of every checkpoint
  TokenData data_;
  std::optional<Masking> masking_;     // of a model that finds masked tokens
  std::optional<BatchOrder> batches_;  // as config_.batches says; none: drawn
  StepFunctions functions_;
  std::vector<CompiledRanks> plans_;                    // step (or micro step), eval, update, join
  std::optional<CompiledStages> stages_, eval_stages_;  // of a pipeline, instead of these
  StepCost cost_;                                       // of all ranks
  std::vector<StepCost> rank_costs_;
  int64_t recomputed_flops_ = 0;
  RankGroup group_;
  RankRuns ranks_;  // this process's
  bool was_stopped_ = false;
  std::vector<int64_t> order_;             // of a row's tokens over cp (deal.h)
  std::vector<int32_t> tokens_, targets_;  // of all ranks
  float lr_ = 0, c1_ = 0, c2_ = 0;
  int64_t step_ = 0;  // steps done
  LossScaleState loss_scale_;
  std::string saved_;  // the checkpoint of saved_step_
  int64_t saved_step_ = -1;
  int64_t free_before_ = 0;             // bytes of the device
  std::optional<BestCheckpoint> best_;  // of this run and those that it goes on from
  double bytes_per_token_ = 0;          // of the validation split; 0: not counted yet
  double compile_ms_ = 0;
  std::vector<std::string> rank_bars_;  // by process
  int64_t timed_steps_ = 0;
  RunTrace trace_;
};

}  // namespace tegula
