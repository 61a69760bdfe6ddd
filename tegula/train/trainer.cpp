#include "tegula/train/trainer.h"

#include <cmath>
#include <cstring>

#include "tegula/base/algorithm.h"
#include "tegula/base/clock.h"
#include "tegula/base/median.h"
#include "tegula/base/round.h"
#include "tegula/base/saturating.h"
#include "tegula/base/text.h"
#include "tegula/io/checkpoint.h"
#include "tegula/plan/memory.h"
#include "tegula/runtime/finite_hunt.h"
#include "tegula/train/deal.h"
#include "tegula/train/device_memory.h"
#include "tegula/train/ranks.h"
#include "tegula/train/timeline.h"

namespace tegula {

namespace {
// A NaN may have a sign, which says nothing.
std::string number(double v) { return std::isnan(v) ? "NaN" : cat(v); }
constexpr int64_t kTrainEvalBatches = 32;
// The arena is poisoned with one value, then the other, so that no written byte can hide.
constexpr uint8_t kPoison[] = {0xa5, 0x5a};
// Whose kernels are timed one by one, for the report: the others are replayed as one graph.
constexpr int64_t kTimedDeviceSteps = 2;

}  // namespace

// A rank's share of the batch; one rank alone reads it where it is.
void Trainer::give_batch(size_t which, int64_t rank) {
  if (is_alone()) return;
  const Type type{DType::kI32, {config_.batch, config_.row_length()}};
  RankRun& run = run_of(rank);
  take_share(plans_[which], rank, "tokens", contiguous_ref(tokens_.data(), type),
             run.tokens.data());
  take_share(plans_[which], rank, "targets", contiguous_ref(targets_.data(), type),
             run.targets.data());
}

Status Trainer::run_all(size_t which, int64_t slot) {
  const auto s = static_cast<size_t>(slot);
  if (is_alone()) return ranks_[0]->sessions[which][s]->run();
  return group_.run([&](int64_t r) { return run_of(r).sessions[which][s]->run(); });
}

// Gives, of the step's micro-batches, the one that is a rank's own i-th: dp's ranks share them out,
// whole, or have the same one.
int64_t Trainer::micro_batch(int64_t rank, int64_t i) const {
  if (batch_shares(config_) == 1) return i;
  const int64_t at = config_.mesh.at(rank)[static_cast<size_t>(config_.mesh.find("dp"))];
  return at * micro_groups(config_).n + i;
}

// Each own rank's i-th micro-batch. Which batch, and which random numbers, are a function of (seed,
// step, micro-batch) alone.
void Trainer::fill_inputs(int64_t i) {
  int64_t filled = -1;
  for (int64_t rank = group_.first_rank(); rank < group_.first_rank() + group_.n_own(); ++rank) {
    const int64_t index = step_ * config_.accumulate + micro_batch(rank, i);
    if (filled != index) fill_micro_batch(index);
    filled = index;
    run_of(rank).seed =
        static_cast<int64_t>(config_.seed + static_cast<uint64_t>(index) * 0x9e3779b97f4a7c15);
    if (is_staged())
      give_stages(rank, i);
    else
      give_batch(kStep, rank);
  }
}

void Trainer::fill_micro_batch(int64_t index) {
  if (batches_)
    fill_rows(data_.train(), batches_->of(index), config_.row_length(), tokens_.data(),
              targets_.data());
  else
    fill_batch(data_.train(), config_.seed, index, config_.batch, config_.row_length(),
               tokens_.data(), targets_.data());
  if (masking_)
    masking_->apply(config_.seed, Masking::kSteps, index * config_.batch, config_.row_length(),
                    tokens_, targets_);
  if (!is_alone()) deal(order_, tokens_), deal(order_, targets_);
}

int64_t Trainer::n_sessions(size_t which) const {
  const int64_t n_slots = micro_groups(config_).n_slots();
  return which == kStep ? n_slots : which == kJoin ? n_slots - 1 : 1;
}

// The mean of all micro-batches' losses, in their order; `own`: of each own rank's, i-th after
// i-th.
Result<double> Trainer::mean_loss(const std::vector<float>& own) {
  const auto n_own = static_cast<size_t>(group_.n_own()), n = own.size() / n_own;
  std::vector<float> losses(static_cast<size_t>(config_.accumulate));
  const auto all = TEGULA_TRY(group_.segment().exchange(
      std::string(reinterpret_cast<const char*>(own.data()), own.size() * sizeof(float))));
  for (size_t p = 0; p < all.size(); ++p)
    for (size_t k = 0; k < own.size() && all[p].size() == own.size() * sizeof(float); ++k) {
      const auto rank = static_cast<int64_t>(p * n_own + k / n);
      float& loss = losses[static_cast<size_t>(micro_batch(rank, static_cast<int64_t>(k % n)))];
      std::memcpy(&loss, all[p].data() + k * sizeof(float), sizeof(float));
    }
  double sum = 0;
  for (const float loss : losses) sum += loss;
  return sum / static_cast<double>(config_.accumulate);
}

// Sums the gradients of the step's micro-batches; their mean loss.
Result<double> Trainer::run_micro_steps() {
  const MicroGroups groups = micro_groups(config_);
  const auto n = static_cast<size_t>(groups.n);
  std::vector<float> losses(ranks_.size() * n);
  for (int64_t i = 0; i < groups.n; ++i) {
    fill_inputs(i);
    const int64_t slot = groups.slot_of(i);
    TEGULA_TRY(run_all(kStep, slot));
    for (size_t r = 0; r < ranks_.size(); ++r) {
      Session& s = *ranks_[r]->sessions[kStep][static_cast<size_t>(slot)];
      losses[r * n + static_cast<size_t>(i)] = TEGULA_TRY(s.fetch("loss")).as<float>()[0];
    }
    for (int64_t j = 1; j <= groups.joins_after(i); ++j) TEGULA_TRY(run_all(kJoin, slot - j));
  }
  if (batch_shares(config_) > 1) return mean_loss(losses);
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += losses[i];
  return sum / static_cast<double>(n);
}

Status Trainer::one_step(StepReport& report) {
  const Stopwatch watch;
  const auto t = static_cast<double>(step_ + 1 - loss_scale_.skipped);  // updates, with this one
  report.step = step_ + 1;
  report.lr = learning_rate(config_, step_);
  lr_ = static_cast<float>(report.lr);
  c1_ = static_cast<float>(1 / (1 - std::pow(config_.optimizer.beta1, t)));
  c2_ = static_cast<float>(1 / (1 - std::pow(config_.optimizer.beta2, t)));
  TEGULA_TRY(is_staged() ? one_step_in_stages(report) : one_step_of_all(report));
  report.step_ms = watch.ms();
  report.tokens_per_s = static_cast<double>(config_.batch * config_.accumulate) *
                        static_cast<double>(config_.row_length()) / report.step_ms * 1e3;
  if (config_.dtype == "f16") TEGULA_TRY(follow_loss_scale(report));
  if (!std::isfinite(report.loss) || !(report.is_skipped || std::isfinite(report.grad_norm)))
    return not_finite(report);
  ++step_;
  return {};
}

// Loss and norm of a step.
Status Trainer::one_step_of_all(StepReport& report) {
  report.loss = TEGULA_TRY(run_micro_steps());
  if (config_.accumulate > 1) TEGULA_TRY(run_all(kUpdate));
  report.grad_norm = TEGULA_TRY(last_session().fetch("grad_norm")).as<float>()[0];
  return {};
}

Session& Trainer::last_session() {
  return *ranks_[0]->sessions[config_.accumulate > 1 ? kUpdate : kStep][0];
}

Status Trainer::follow_loss_scale(StepReport& report) {
  report.loss_scale = loss_scale_.scale;
  const LossScaleState before = loss_scale_;
  loss_scale_ = TEGULA_TRY(is_staged() ? scale_told_by_stages() : fetch_loss_scale(last_session()));
  report.is_skipped = loss_scale_.skipped > before.skipped && loss_scale_.scale >= kLeastLossScale;
  return {};
}

// Runs what was not finite once more, looked at step by step; that changes no weight (see
// optimizer.h). The rank whose fault was first in its plan speaks for all. What it found, in words;
// "": nothing.
Result<std::string> Trainer::find_fault(size_t which, int64_t n_micro) {
  if (is_staged()) return find_fault_in_stages(which == kStep);
  std::vector<std::unique_ptr<FiniteHunt>> hunts;
  for (const auto& run : ranks_) {
    // Sums that hold the NaN already would be blamed for it.
    if (which == kStep)
      for (const auto& [name, entry] : run->store)
        if (is_sum_of_gradients(name)) (void)run->store.zero(name);
    hunts.push_back(std::make_unique<FiniteHunt>(*run->sessions[which][0]));
  }
  // "!", where a NaN or a weight was found and nobody needs to go on; its step, so that the least
  // text is the first fault; what it is.
  const auto first = [&]() -> std::string {
    const NotFinite* least = nullptr;
    for (const auto& hunt : hunts) {
      const NotFinite& f = hunt->found();
      if (!f.weight.empty()) return cat("!          0 ", f.text());
      if (f.origin() && (!least || f.origin()->step < least->origin()->step)) least = &f;
    }
    if (!least) return "~";
    return cat(least->nan.op.empty() ? "#" : "!", printed("%10zu ", least->origin()->step + 1),
               least->text());
  };
  constexpr size_t kWords = 12;  // where the words begin
  std::string found = "~";
  for (int64_t micro = 0; micro < n_micro && found[0] != '!'; ++micro) {
    if (which == kStep) fill_inputs(micro);
    (void)run_all(which);
    for (const std::string& one : TEGULA_TRY(group_.segment().exchange(first())))
      found = std::min(found, one);
  }
  return found.size() > kWords ? found.substr(kWords) : "";
}

Error Trainer::not_finite(const StepReport& report) {
  auto fault = find_fault(kStep, micro_groups(config_).n);
  if (!fault.ok()) return std::move(fault).error();
  const std::string cause =
      fault->empty() ? "the first infinite value came from op sqrt of the gradient norm" : *fault;
  return invalid_argument(cat("step ", report.step, ": the loss is ", number(report.loss),
                              " and the gradient norm ", number(report.grad_norm), "; ", cause,
                              "; ", what_is_kept(), ". Lower --lr, lengthen --warmup or set ",
                              "--grad-clip"));
}

Result<float> Trainer::eval_loss() {
  if (is_staged()) {
    TEGULA_TRY(run_stages(false));
    return TEGULA_TRY(told_by_stages(false))[0];
  }
  TEGULA_TRY(run_all(kEval));
  return TEGULA_TRY(ranks_[0]->sessions[kEval][0]->fetch("loss")).as<float>()[0];
}

// Rows of seqlen tokens and what follows each; of more than `most_rows`, as many spread evenly.
Result<double> Trainer::split_loss(std::span<const int32_t> tokens, int64_t most_rows,
                                   const std::atomic<bool>& stop) {
  const int64_t seqlen = config_.row_length(), batch = config_.batch;
  const bool is_training = tokens.data() == data_.train().data();
  const int64_t all = (static_cast<int64_t>(tokens.size()) - 1) / seqlen;
  const int64_t rows = std::min(all, most_rows);
  for (const auto& run : ranks_)
    if (run->eval_watch) run->eval_watch->begin(kPoison[0], &run->rank.pool);
  double total = 0;
  int64_t counted = 0;
  for (int64_t row = 0; row < rows; row += batch) {
    if (TEGULA_TRY(is_stopped(stop))) return NAN;
    const int64_t here = std::min(batch, rows - row);
    for (int64_t r = 0; r < batch; ++r) {
      const int64_t wanted = row + std::min(r, here - 1);
      const auto* at = tokens.data() + (rows == all ? wanted : wanted * all / rows) * seqlen;
      std::copy(at, at + seqlen, tokens_.data() + r * seqlen);
      if (r < here) {
        std::copy(at + 1, at + 1 + seqlen, targets_.data() + r * seqlen);
      } else {  // a short last batch: its other rows count nothing
        std::fill_n(targets_.data() + r * seqlen, seqlen, kIgnored);
      }
    }
    if (masking_)
      masking_->apply(config_.seed, is_training ? Masking::kTraining : Masking::kValidation, row,
                      seqlen, std::span(tokens_).first(static_cast<size_t>(here * seqlen)),
                      targets_);
    if (!is_alone()) deal(order_, tokens_), deal(order_, targets_);
    for (size_t r = 0; r < ranks_.size(); ++r) {
      const int64_t rank = group_.first_rank() + static_cast<int64_t>(r);
      if (is_staged())
        give_stages(rank, -1);
      else
        give_batch(kEval, rank);
    }
    const float loss = TEGULA_TRY(eval_loss());
    if (!std::isfinite(loss)) return loss_not_finite(tokens, loss);
    total += loss * static_cast<double>(here);
    counted += here;
  }
  for (const auto& run : ranks_)
    if (run->eval_watch) TEGULA_TRY(run->eval_watch->end());
  return total / static_cast<double>(counted);
}

Error Trainer::loss_not_finite(std::span<const int32_t> tokens, double loss) {
  const bool is_training = tokens.data() == data_.train().data();
  auto fault = find_fault(kEval, 1);
  if (!fault.ok()) return std::move(fault).error();
  return invalid_argument(
      cat("after step ", step_, " the loss of the ", is_training ? "training" : "validation",
          " split is ", number(loss), fault->empty() ? "" : "; ", *fault, "; ",
          config_.out.empty() ? what_is_kept()
                              : cat("no checkpoint in ", config_.out, " is called the best for it"),
          ". Lower --lr, lengthen --warmup or set --grad-clip"));
}

// Whether any process was told to stop: all stop at the same place.
Result<bool> Trainer::is_stopped(const std::atomic<bool>& stop) {
  if (group_.segment().n_processes() == 1) return stop.load();
  for (const std::string& one : TEGULA_TRY(group_.segment().exchange(stop.load() ? "stop" : "")))
    if (!one.empty()) was_stopped_ = true;
  return was_stopped_;
}

Result<EvalReport> Trainer::evaluate(const std::atomic<bool>& stop) {
  const std::span<const int32_t> validation = data_.validation();
  const int64_t seqlen = config_.row_length();
  const int64_t rows = (static_cast<int64_t>(validation.size()) - 1) / seqlen;
  EvalReport e;
  e.step = step_;
  e.val_loss = TEGULA_TRY(split_loss(validation, rows, stop));
  e.train_loss = TEGULA_TRY(
      split_loss(data_.train(), std::min(rows, kTrainEvalBatches * config_.batch), stop));
  if (bytes_per_token_ == 0 && !masking_) {
    const auto targets = validation.subspan(1, static_cast<size_t>(rows * seqlen));
    size_t bytes = 0;
    for (const int32_t id : targets) bytes += tokenizer_->token(id).size();
    bytes_per_token_ = static_cast<double>(bytes) / static_cast<double>(targets.size());
  }
  if (!masking_) e.bits_per_byte = e.val_loss / std::log(2) / bytes_per_token_;
  e.is_best = !best_ || e.val_loss < best_->val_loss;
  return e;
}

// The checkpoint of the lowest validation loss is kept. It is saved for that where saves are made
// at all before the end.
Status Trainer::evaluate_and_keep(const std::atomic<bool>& stop, TrainSummary& sum) {
  const EvalReport e = TEGULA_TRY(evaluate(stop));
  if (TEGULA_TRY(is_stopped(stop))) return {};
  sum.eval = e;
  if (on_eval) on_eval(context, e);
  if (!e.is_best) return {};
  if (!config_.out.empty()) {
    if (saved_step_ != step_ && config_.save_every == 0) return {};
    if (saved_step_ != step_) TEGULA_TRY(save());
    best_ = {saved_, step_, e.val_loss};
    return is_speaker() ? keep_best(config_.out, *best_) : Status();
  }
  best_ = {"", step_, e.val_loss};
  return {};
}

std::string Trainer::validation_text(int64_t n_tokens) const {
  const std::span<const int32_t> all = data_.validation();
  return tokenizer_->decode(all.first(std::min(static_cast<size_t>(n_tokens), all.size())));
}

// Step number `done` of this run: the first two are measured, and with --check all.
Status Trainer::watched_step(StepReport& report, int64_t done) {
  const bool watches = done < 2 || config_.check;
  for (const auto& run : ranks_) {
    for (size_t i = 0; i < run->sessions.size(); ++i)
      for (const auto& session : run->sessions[i])
        session->watch(i == kEval ? run->eval_watch.get() : watches ? run->watch.get() : nullptr);
    if (run->step_program) run->step_program->watch(watches ? run->watch.get() : nullptr);
    if (run->eval_program) run->eval_program->watch(run->eval_watch.get());
    if (run->step_program && watches) run->flows.poison(kPoison[done % 2]);
    if (watches && run->watch) run->watch->begin(kPoison[done % 2], &run->rank.pool);
    if (watches && !run->watch) run->arena.poison(kPoison[done % 2]);
  }
  auto st = one_step(report);
  if (!st.ok() || !watches) return st;
  for (const auto& run : ranks_) {
    if (run->step_program) TEGULA_TRY(measure_flows(*run, kPoison[done % 2]));
    if (run->watch) {
      TEGULA_TRY(run->watch->end());
      continue;
    }
    const int64_t written = run->arena.touched(kPoison[done % 2]);
    if (written > run->arena.bytes() - kSpareBytes)
      return internal_error(cat("a kernel wrote ", written, " bytes far into an arena of ",
                                run->arena.bytes() - kSpareBytes));
    run->written_bytes = std::max(run->written_bytes, written);
  }
  return {};
}

int64_t Trainer::sent_bytes_a_step(int64_t rank) const {
  if (is_staged()) return stages_->sent_bytes(rank);
  const auto of = [&](size_t which) {
    const CompiledRanks& c = plans_[which];
    return c.plan_of(rank)->sent_bytes(c.mesh, c.mesh.at(rank));
  };
  return micro_groups(config_).n * of(kStep) + (config_.accumulate > 1 ? of(kUpdate) : 0);
}

std::vector<const Plan*> Trainer::plans_of_step(int64_t rank) const {
  std::vector<const Plan*> plans;
  for (size_t i = 0; i < plans_.size(); ++i)
    if (i != kEval) plans.push_back(plans_[i].plan_of(rank).get());
  return plans;
}

void Trainer::measure_memory(TrainSummary& sum) const {
  int64_t live = 0;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const RankRun& run = *ranks_[i];
    const size_t r = static_cast<size_t>(group_.first_rank()) + i;
    // On a device only what was written is seen, in whole lines of memory.
    int64_t all_written = run.watch ? run.watch->written_bytes() : run.written_bytes;
    int64_t measured =
        run.watch ? run.watch->claimed_bytes() : round_up(run.written_bytes, kAlignment);
    measured += run.flow_bytes, all_written += run.flow_bytes;
    for (const auto& [name, entry] : run.store) {
      // Made of zeros: what is none now was written. More than its bytes: so was what lies behind.
      const int64_t written = entry.region.touched(0);
      measured += std::max(entry.region.bytes(), written), all_written += written;
    }
    sum.ranks[r].peak_bytes_planned = rank_costs_[r].peak_bytes();
    sum.ranks[r].peak_bytes_measured = measured;
    sum.ranks[r].peak_bytes_written = all_written;
    live += run.rank.memory.live_bytes();
  }
  const ProcessMemory now = process_memory(live);
  sum.process_touched_bytes = now.touched_bytes, sum.process_peak_bytes = now.peak_touched_bytes;
  sum.process_touched_before_bytes = before_.touched_bytes;
  sum.process_allocated_bytes = now.allocated_bytes;
  sum.process_allocated_before_bytes = before_.allocated_bytes;
}

// The first rank's step for the report, and all that ranks do for a timeline of them.
void Trainer::time_steps(bool is_timed) {
  const bool draws_all = !config_.timeline.empty() && !is_alone();
  for (const auto& run : ranks_) {
    if (!draws_all || !is_staged()) break;
    run->step_program->record(is_timed);
    for (size_t i = 0; i < run->step_program->sessions().size(); ++i)
      if (const auto& session = run->step_program->sessions()[i])
        session->collect(is_timed ? &run->stats[1 + i] : nullptr);
  }
  if (is_staged()) main_sessions()[0]->collect(is_timed ? &ranks_[0]->stats[kStep] : nullptr);
  for (size_t r = 0; r < ranks_.size(); ++r)
    for (size_t i = 0; i < plans_.size(); ++i)
      if (i != kEval && (draws_all || (r == 0 && i == kStep)))
        for (const auto& session : ranks_[r]->sessions[i])
          session->collect(is_timed ? &ranks_[r]->stats[i] : nullptr);
}

Status Trainer::exchange_bars() {
  if (config_.timeline.empty() || is_alone()) return {};
  std::string own;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    const int64_t rank = group_.first_rank() + static_cast<int64_t>(r);
    if (is_staged()) own += bars_of_rank(rank, *ranks_[r]->step_program);
    for (size_t i = 0; i < plans_.size(); ++i)
      own += bars_of_rank(rank, ranks_[r]->sessions[i][0]->plan(), ranks_[r]->stats[i]);
  }
  rank_bars_ = TEGULA_TRY(group_.segment().exchange(own));
  return {};
}

// Every process's ranks, and what they make together.
Status Trainer::exchange_counts(TrainSummary& sum) {
  TEGULA_TRY(exchange(group_, sum.ranks));
  for (const RankSummary& r : sum.ranks) {
    sum.flops_per_step_counted += r.flops_counted;
    sum.flops_per_step_executed += r.flops_executed;
    sum.peak_bytes_measured = std::max(sum.peak_bytes_measured, r.peak_bytes_measured);
    sum.peak_bytes_written = std::max(sum.peak_bytes_written, r.peak_bytes_written);
  }
  return {};
}

std::string explain_process_memory(const TrainSummary& s) {
  const auto mib = [](int64_t bytes) {
    return printed("%.1f MiB", static_cast<double>(bytes) / (1 << 20));
  };
  const int64_t heap =
      s.process_allocated_bytes - s.process_allocated_before_bytes - s.peak_bytes_measured;
  const int64_t rest = s.process_touched_bytes - s.process_touched_before_bytes -
                       s.peak_bytes_measured - std::max<int64_t>(heap, 0);
  return cat(
      "The process has touched ", mib(s.process_touched_bytes), ": ",
      mib(s.process_touched_before_bytes), " before (program and libraries), ",
      mib(s.peak_bytes_measured), " as measured, ", mib(std::max<int64_t>(heap, 0)),
      " of text, tokens, tokenizer and plans; the other ", mib(rest),
      " are stacks of threads, code and whole pages, less what was allocated and not touched. "
      "Allocated: ",
      mib(s.process_allocated_bytes), "; the most ever touched: ", mib(s.process_peak_bytes),
      " (reading the text, or probing the machine's speed).");
}

// A device that fails takes what lies there along.
Error Trainer::in_step(Error e) const {
  if (e.code != Code::kDevice) return e;
  e.message = cat("step ", step_ + 1, ": ", e.message, "; ",
                  saved_step_ < 0 ? std::string("nothing was saved yet")
                                  : cat("step ", saved_step_, " is saved in ", config_.out,
                                        ": --resume goes on from there, with --device cpu too"));
  return e;
}

std::vector<Session*> Trainer::main_sessions() const {
  const RankRun& first = *ranks_[0];
  if (const ProgramSession* p = first.step_program.get())
    return {p->sessions()[static_cast<size_t>(p->program().order[0].part)].get()};
  std::vector<Session*> all;
  for (const auto& session : first.sessions[kStep]) all.push_back(session.get());
  return all;
}

std::vector<int64_t> Trainer::launches() const {
  const Session& main = *main_sessions()[0];
  std::vector<int64_t> all;
  for (size_t i = 0; i < plan().steps.size(); ++i) all.push_back(main.launches(i));
  return all;
}

Result<TrainSummary> Trainer::run(const std::atomic<bool>& stop) {
  TrainSummary sum;
  std::vector<double> times;
  StepReport report;
  const size_t n_own = ranks_.size();
  const auto first_rank = static_cast<size_t>(group_.first_rank());
  sum.ranks.resize(static_cast<size_t>(n_ranks()));
  const int64_t first = step_;
  for (const auto& run : ranks_) {
    run->stats.assign(plans_.size(), {});
    if (is_staged())
      run->stats.assign(1 + run->step_program->sessions().size(),
                        std::vector<StepStats>(plan().steps.size()));
    for (size_t i = 0; i < plans_.size(); ++i)
      run->stats[i].resize(run->sessions[i][0]->plan().steps.size());
  }
  while (step_ < config_.steps && !TEGULA_TRY(is_stopped(stop))) {
    const int64_t done = step_ - first;
    std::vector<int64_t> math, executed, sent;  // of each rank, micro-batches and update
    for (size_t r = 0; r < n_own; ++r) {
      math.push_back(ranks_[r]->rank.counters.math_flops);
      executed.push_back(ranks_[r]->rank.counters.executed_flops);
      sent.push_back(group_.sent_bytes(static_cast<int64_t>(first_rank + r)));
    }
    const bool is_timed = done >= 2 && (!ranks_[0]->rank.device || done < 2 + kTimedDeviceSteps);
    time_steps(is_timed);
    Device* const traced =
        done + 1 == kTracedStep && !config_.timeline.empty() ? ranks_[0]->rank.device : nullptr;
    if (traced) begin_trace(*traced, trace_);
    auto st = watched_step(report, done);
    if (traced) end_trace(*traced, trace_);
    if (!st.ok()) return in_step(std::move(st).error());
    timed_steps_ += int64_t{is_timed};
    for (size_t r = 0; r < n_own; ++r) {
      const Counters& now = ranks_[r]->rank.counters;
      RankSummary& of = sum.ranks[first_rank + r];
      of.flops_counted = counted_since(now.math_flops, math[r]);
      of.flops_executed = counted_since(now.executed_flops, executed[r]);
      of.sent_bytes_counted = group_.sent_bytes(static_cast<int64_t>(first_rank + r)) - sent[r];
    }
    times.push_back(report.step_ms);
    if (on_step) on_step(context, report);
    const bool last = step_ == config_.steps;
    // Saved first: an evaluation can be long.
    if (config_.save_every > 0 && step_ % config_.save_every == 0 && !last) TEGULA_TRY(save());
    if (config_.eval_every > 0 && step_ % config_.eval_every == 0 && !last)
      TEGULA_TRY(evaluate_and_keep(stop, sum));
  }
  if (step_ > first || !config_.resume) TEGULA_TRY(save());
  TEGULA_TRY(evaluate_and_keep(stop, sum));
  if (best_) sum.best_val_loss = best_->val_loss, sum.best_step = best_->step;
  sum.interrupted = TEGULA_TRY(is_stopped(stop));
  sum.steps = step_;
  if (!times.empty()) {
    sum.train_loss = report.loss;
    sum.step_ms = median(times);
    sum.tokens_per_s = static_cast<double>(config_.batch * config_.accumulate) *
                       static_cast<double>(config_.row_length()) / sum.step_ms * 1e3;
  }
  sum.params = parameters();
  sum.loss_scale = loss_scale_;
  sum.flops_per_step_planned = cost_.flops;
  sum.flops_per_step_recomputed = recomputed_flops_;
  sum.bytes_per_step_planned = cost_.bytes;
  sum.lower_bound_bytes = cost_.lower_bound_bytes + cost_.state_bytes;
  sum.peak_bytes_planned = cost_.peak_bytes();
  for (size_t r = first_rank; r < first_rank + n_own; ++r) {
    sum.ranks[r].flops_planned = rank_costs_[r].flops;
    sum.ranks[r].sent_bytes_planned = sent_bytes_a_step(static_cast<int64_t>(r));
  }
  measure_memory(sum);
  TEGULA_TRY(exchange_counts(sum));
  TEGULA_TRY(exchange_bars());
  sum.compile_ms = compile_ms_;
  sum.device = plan().target.name;
  if (Device* device = ranks_[0]->rank.device)
    sum.device_taken_bytes = free_before_ - TEGULA_TRY(device->free_bytes());
  for (const CompiledRanks& c : plans_) sum.host_steps += c.plans[0]->host_steps();
  if (!is_alone()) sum.links = group_.link_uses(group_.first_rank());
  return sum;
}

double TrainSummary::hidden() const {
  double link_s = 0, waited_s = 0;
  for (const LinkUse& l : links) link_s += l.link_s, waited_s += l.waited_s;
  return link_s > 0 ? 1 - waited_s / link_s : NAN;
}

}  // namespace tegula
