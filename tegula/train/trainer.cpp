#include "tegula/train/trainer.h"

#include <chrono>
#include <cmath>

#include "tegula/base/algorithm.h"
#include "tegula/base/round.h"
#include "tegula/base/saturating.h"
#include "tegula/io/checkpoint.h"
#include "tegula/io/run_directory.h"
#include "tegula/io/sha256.h"
#include "tegula/ir/reference.h"
#include "tegula/models/checkpoint.h"
#include "tegula/models/rotary.h"
#include "tegula/plan/memory.h"
#include "tegula/runtime/finite_hunt.h"
#include "tegula/train/deal.h"
#include "tegula/train/device_memory.h"
#include "tegula/train/ranks.h"
#include "tegula/train/utilisation.h"

namespace tegula {

namespace {
using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point t) {
  return std::chrono::duration<double, std::milli>(Clock::now() - t).count();
}
// A NaN may have a sign, which says nothing.
std::string number(double v) { return std::isnan(v) ? "NaN" : cat(v); }
constexpr int64_t kTrainEvalBatches = 32;
constexpr size_t kStep = 0, kEval = 1, kUpdate = 2;
// The arena is poisoned with one value, then the other, so that no written byte can hide.
constexpr uint8_t kPoison[] = {0xa5, 0x5a};
// Whose kernels are timed one by one, for the report: the others are replayed as one graph.
constexpr int64_t kTimedDeviceSteps = 2;

std::vector<std::string> names_of(const std::vector<TextFile>& files) {
  std::vector<std::string> names;
  for (const TextFile& file : files) names.push_back(file.path);
  return names;
}
}  // namespace

Result<std::unique_ptr<Trainer>> Trainer::create(TrainConfig config,
                                                 void (*on_planned)(const Trainer&)) {
  std::unique_ptr<Trainer> t(new Trainer(std::move(config)));
  const TrainConfig& c = t->config_;
  if (c.steps > 0 && c.steps <= c.warmup)
    t->notes.push_back(cat("--steps ", c.steps, " ends within --warmup ", c.warmup,
                           ": the learning rate only rises, to ", learning_rate(c, c.steps - 1),
                           " of --lr ", c.lr));
  for (auto step :
       {&Trainer::lock_output, &Trainer::open_origin, &Trainer::load_data, &Trainer::compile_plans})
    TEGULA_TRY((t.get()->*step)());
  if (on_planned) on_planned(*t);
  for (auto step : {&Trainer::allocate, &Trainer::init_or_resume, &Trainer::bind_all})
    TEGULA_TRY((t.get()->*step)());
  return t;
}

// Before any file is opened, so that what is read of the directory stays true.
Status Trainer::lock_output() {
  const std::string& out = config_.out;
  if (out.empty()) return {};
  // A directory that holds no run to go on with gets no directories for one.
  if (config_.resume && !path_exists(join_path(out, "checkpoints")))
    return latest_good(out).error();
  TEGULA_TRY(check_run_directory(out, config_.resume      ? RunStart::kResume
                                      : config_.overwrite ? RunStart::kOverwrite
                                                          : RunStart::kNew));
  // To be overwritten, it stays what it is until there is something to put in its place.
  if (!config_.overwrite) TEGULA_TRY(mark_run_directory(out));
  lock_ = std::make_unique<FileLock>(TEGULA_TRY(lock_checkpoints(out)));
  if (config_.overwrite) return {};
  TEGULA_TRY(restore_links(out));
  auto found = latest_good(out);
  if (!config_.resume) {
    if (!found.ok()) return {};
    return invalid_argument(cat("'", out, "' holds a run, saved at step ", found->step,
                                ": --resume goes on with it; to train anew, choose another --out ",
                                "or give --overwrite"));
  }
  const GoodCheckpoint good = TEGULA_TRY(std::move(found));
  for (const std::string& damage : good.rejected)
    notes.push_back(cat("damaged: ", damage, ": going on from step ", good.step));
  from_ = TEGULA_TRY(ModelFiles::open(good.path, Check::kSizes));  // it was verified
  return take_model_of(*from_, config_, notes);
}

// A model to start from decides the shape, as a run to go on with does.
Status Trainer::open_origin() {
  if (config_.init_from.empty()) return {};
  from_ = TEGULA_TRY(ModelFiles::open(config_.init_from));
  return take_model_of(*from_, config_, notes);
}

Status Trainer::load_data() {
  const TextData text = TEGULA_TRY(load_text(config_.data, config_.out));
  data_summary = text.summary();
  hashes_.text = sha256_hex(text.text);
  std::string note;
  Tokenizer tokenizer = from_ ? TEGULA_TRY(load_model_tokenizer(*from_, config_.model, note))
                              : TEGULA_TRY(Tokenizer::train(config_.tokenizer, text.text));
  if (!note.empty()) notes.push_back(std::move(note));
  const bool is_masked = TEGULA_TRY(find_model(config_.model.type))->sees_ahead;
  if (is_masked && !from_) tokenizer.add_special(kMaskToken);
  if (!from_) config_.model.vocab_size = tokenizer.vocab_size();
  auto st = config_.model.resolve();
  if (!st.ok()) return st;
  std::string angles = note_on_rotary(config_.model, config_.row_length());
  if (!angles.empty()) notes.push_back(std::move(angles));
  if (is_masked) masking_ = TEGULA_TRY(masking_of(tokenizer, from_.get(), config_.row_length()));
  data_ = TEGULA_TRY(
      split_tokens(TEGULA_TRY(tokenizer.encode(text.text, !is_masked)), config_.row_length()));
  tokenizer_ = std::make_unique<Tokenizer>(std::move(tokenizer));
  TEGULA_TRY(prepare_texts());
  return load_batches();
}

// Read at once: a run goes on for longer than the files that it begins with.
Status Trainer::prepare_texts() {
  texts_ = TEGULA_TRY(model_texts(config_, *tokenizer_, from_.get()));
  if (config_.out.empty() || config_.overwrite) return {};
  return prepare_checkpoints(config_.out, names_of(texts_));
}

Status Trainer::load_batches() {
  if (config_.batches.empty()) return {};
  const std::string text = TEGULA_TRY(read_text(config_.batches));
  hashes_.batches = sha256_hex(text);
  batches_ = TEGULA_TRY(parse_batches(
      text, config_.batches,
      {config_.batch, config_.row_length(), static_cast<int64_t>(data_.train().size()),
       config_.steps, config_.accumulate}));
  return {};
}

Status Trainer::compile_plans() {
  const auto start = Clock::now();
  const int64_t n_ranks = config_.mesh.n_ranks();
  Device* device = nullptr;
  if (config_.device == "cuda") {
    if (n_ranks > 1)
      return unsupported("--mesh: the ranks of a mesh run on the CPU: leave out --device cuda");
    if (config_.check)
      return unsupported("--check watches the CPU's kernels: leave out --device cuda");
    device = TEGULA_TRY(open_device());
    free_before_ = TEGULA_TRY(device->free_bytes());
  }
  // Threads are each rank's.
  const int threads = config_.threads > 0 || n_ranks == 1
                          ? config_.threads
                          : std::max(1, usable_cores() / static_cast<int>(n_ranks));
  for (int64_t r = 0; r < n_ranks; ++r) {
    ranks_.push_back(device ? std::make_unique<RankRun>(*device)
                            : std::make_unique<RankRun>(threads));
    if (n_ranks > 1) ranks_.back()->rank.peers = &group_.peers(r);
  }
  const Target target =
      device ? device->target() : Target::this_cpu(ranks_[0]->rank.pool.n_threads());
  if (config_.device_memory_bytes > 0) {
    const DeviceFit fit =
        TEGULA_TRY(fit_device_memory(config_, target, config_.device_memory_bytes));
    config_.memory_bytes = fit.arena_budget_bytes;
    if (fit.arena_budget_bytes > 0)
      notes.push_back(cat("--device-memory: activations are recomputed to fit: ",
                          fit.memory.total_bytes(), " bytes of ", config_.device_memory_bytes));
  }
  functions_ = TEGULA_TRY(build_step_functions(config_));
  order_ = dealt_order(config_);
  const bool one = config_.accumulate == 1;
  const auto add = [&](FuncId f) -> Status {
    plans_.push_back(TEGULA_TRY(compile_for_ranks(config_, functions_, f, target)));
    return {};
  };
  TEGULA_TRY(add(one ? functions_.train_step : functions_.micro_step));
  compile_ms_ = ms_since(start);
  TEGULA_TRY(add(functions_.eval_loss));
  if (!one) TEGULA_TRY(add(functions_.update));
  for (size_t r = 0; r < ranks_.size(); ++r)
    rank_costs_.push_back(TEGULA_TRY(step_cost(config_, *plans_[kStep].plans[r],
                                               one ? nullptr : plans_[kUpdate].plans[r].get())));
  cost_ = TEGULA_TRY(cost_of_ranks(rank_costs_));
  recomputed_flops_ = TEGULA_TRY(tegula::recomputed_flops(config_, target, cost_.flops));
  if (device) {
    std::vector<const Plan*> all;
    for (const CompiledRanks& c : plans_) all.push_back(c.plans[0].get());
    const DeviceMemory needs = device_memory(target, all, cost_.state_bytes);
    if (needs.total_bytes() > free_before_)
      return more_than_free(config_, target, needs, free_before_);
  }
  for (const CompiledRanks& plan : plans_)
    notes.insert(notes.end(), plan.notes.begin(), plan.notes.end());
  return {};
}

Status Trainer::allocate() {
  for (size_t r = 0; r < ranks_.size(); ++r) {
    RankRun& run = *ranks_[r];
    int64_t bytes = 0;
    for (const CompiledRanks& c : plans_) bytes = std::max(bytes, c.plans[r]->arena_bytes);
    Device* device = run.rank.device;
    const int64_t spare = config_.check || device ? kSpareBytes : 0;
    run.arena = TEGULA_TRY(device ? Region::on(device, run.rank.memory, bytes + spare)
                                  : Region::between_guards(run.rank.memory, bytes + spare));
    if (!device) TEGULA_TRY(make_watches(run, r));
    for (const CompiledRanks& c : plans_)
      run.sessions.push_back(std::make_unique<Session>(c.plans[r], run.rank, run.arena.data()));
    if (memory_nodes() > 1 && !device) run.sessions[kStep]->touch_arena();
  }
  return ranks_.size() > 1 ? agree_on_collectives(group_, plans_) : Status();
}

Status Trainer::make_watches(RankRun& run, size_t rank) {
  const auto where =
      config_.check ? MemoryWatch::Workspaces::kApart : MemoryWatch::Workspaces::kInArena;
  std::vector<const Plan*> step;
  for (size_t i = 0; i < plans_.size(); ++i)
    if (i != kEval) step.push_back(plans_[i].plans[rank].get());
  run.watch = TEGULA_TRY(MemoryWatch::create(run.arena, step, where));
  const Plan* eval[] = {plans_[kEval].plans[rank].get()};
  if (config_.check) run.eval_watch = TEGULA_TRY(MemoryWatch::create(run.arena, eval, where));
  return {};
}

Status Trainer::init_or_resume() {
  for (size_t r = 0; r < ranks_.size(); ++r)
    for (size_t i = 0; i < plans_.size(); ++i)
      TEGULA_TRY(bind_shares(*ranks_[r]->sessions[i], ranks_[r]->store, plans_[i],
                             static_cast<int64_t>(r)));
  const WholeStore whole = TEGULA_TRY(whole_store(ranks_, false));
  if (config_.resume) {
    step_ = TEGULA_TRY(load_training_state(config_, *from_, hashes_, *whole.store, notes));
    saved_ = from_->path(), saved_step_ = step_;
    loss_scale_ = loss_scale_of(*whole.store);
    best_ = best_checkpoint(config_.out);
    // A crash may have come between the two halves of naming it.
    if (best_) TEGULA_TRY(keep_best(config_.out, *best_));
    return give_out(whole, ranks_);
  }
  TEGULA_TRY(start_weights(config_, from_.get(), functions_.weights, *whole.store,
                           ranks_[0]->rank.pool, notes));
  init_loss_scale(*whole.store, config_.loss_scale);
  loss_scale_ = loss_scale_of(*whole.store);
  TEGULA_TRY(give_out(whole, ranks_));
  if (!config_.overwrite || config_.out.empty()) return {};
  TEGULA_TRY(clear_run_directory(config_.out, names_of(texts_)));
  return mark_run_directory(config_.out);
}

Status Trainer::bind_all() {
  const auto n = static_cast<size_t>(config_.batch * config_.row_length());
  tokens_.resize(n), targets_.resize(n);
  give_batch();
  struct Input {
    const char* name;
    void* data;
  };
  for (const auto& run : ranks_)
    for (auto& s : run->sessions)
      for (const Input& in :
           {Input{"tokens", ranks_.size() == 1 ? tokens_.data() : run->tokens.data()},
            {"targets", ranks_.size() == 1 ? targets_.data() : run->targets.data()},
            {"lr", &lr_},
            {"c1", &c1_},
            {"c2", &c2_},
            {"seed", &seed_}})
        if (s->plan().find_param(in.name) >= 0) TEGULA_TRY(s->bind_input(in.name, in.data));
  return {};
}

// Each rank's share of the batch; one rank alone reads it where it is.
void Trainer::give_batch() {
  if (ranks_.size() == 1) return;
  const Type type{DType::kI32, {config_.batch, config_.row_length()}};
  deal(order_, tokens_), deal(order_, targets_);
  for (size_t r = 0; r < ranks_.size(); ++r) {
    const auto rank = static_cast<int64_t>(r);
    take_share(plans_[kEval], rank, "tokens", contiguous_ref(tokens_.data(), type),
               ranks_[r]->tokens);
    take_share(plans_[kEval], rank, "targets", contiguous_ref(targets_.data(), type),
               ranks_[r]->targets);
  }
}

Status Trainer::run_all(size_t which) {
  if (ranks_.size() == 1) return ranks_[0]->sessions[which]->run();
  return group_.run(
      [&](int64_t r) { return ranks_[static_cast<size_t>(r)]->sessions[which]->run(); });
}

// Which batch, and which random numbers, are a function of (seed, step, micro step) alone.
void Trainer::fill_inputs(int64_t micro) {
  const int64_t index = step_ * config_.accumulate + micro;
  seed_ = static_cast<int64_t>(config_.seed + static_cast<uint64_t>(index) * 0x9e3779b97f4a7c15);
  if (batches_)
    fill_rows(data_.train(), batches_->of(index), config_.row_length(), tokens_.data(),
              targets_.data());
  else
    fill_batch(data_.train(), config_.seed, index, config_.batch, config_.row_length(),
               tokens_.data(), targets_.data());
  if (masking_)
    masking_->apply(config_.seed, Masking::kSteps, index * config_.batch, config_.row_length(),
                    tokens_, targets_);
  give_batch();
}

Status Trainer::one_step(StepReport& report) {
  const auto start = Clock::now();
  const auto t = static_cast<double>(step_ + 1 - loss_scale_.skipped);  // updates, with this one
  report.step = step_ + 1;
  report.lr = learning_rate(config_, step_);
  lr_ = static_cast<float>(report.lr);
  c1_ = static_cast<float>(1 / (1 - std::pow(config_.optimizer.beta1, t)));
  c2_ = static_cast<float>(1 / (1 - std::pow(config_.optimizer.beta2, t)));
  report.loss = 0;
  for (int64_t micro = 0; micro < config_.accumulate; ++micro) {
    fill_inputs(micro);
    TEGULA_TRY(run_all(kStep));
    report.loss += TEGULA_TRY(ranks_[0]->sessions[kStep]->fetch("loss")).as<float>()[0];
  }
  report.loss /= static_cast<double>(config_.accumulate);
  if (config_.accumulate > 1) TEGULA_TRY(run_all(kUpdate));
  Session& last = *ranks_[0]->sessions[config_.accumulate > 1 ? kUpdate : kStep];
  report.grad_norm = TEGULA_TRY(last.fetch("grad_norm")).as<float>()[0];
  report.step_ms = ms_since(start);
  report.tokens_per_s = static_cast<double>(config_.batch * config_.accumulate) *
                        static_cast<double>(config_.row_length()) / report.step_ms * 1e3;
  if (config_.dtype == "f16") TEGULA_TRY(follow_loss_scale(last, report));
  if (!std::isfinite(report.loss) || !(report.is_skipped || std::isfinite(report.grad_norm)))
    return not_finite(report);
  ++step_;
  return {};
}

Status Trainer::follow_loss_scale(Session& last, StepReport& report) {
  report.loss_scale = loss_scale_.scale;
  const LossScaleState before = loss_scale_;
  loss_scale_ = TEGULA_TRY(fetch_loss_scale(last));
  report.is_skipped = loss_scale_.skipped > before.skipped && loss_scale_.scale >= kLeastLossScale;
  return {};
}

// Runs what was not finite once more, looked at step by step; that changes no weight (see
// optimizer.h). The rank whose fault was first in its plan speaks for all.
NotFinite Trainer::find_fault(size_t which, int64_t n_micro) {
  std::vector<std::unique_ptr<FiniteHunt>> hunts;
  for (const auto& run : ranks_) {
    // Sums that hold the NaN already would be blamed for it.
    if (which == kStep)
      for (const auto& [name, entry] : run->store)
        if (name.starts_with("grad.")) (void)run->store.zero(name);
    hunts.push_back(std::make_unique<FiniteHunt>(*run->sessions[which]));
  }
  const auto first = [&]() -> const NotFinite* {
    const NotFinite* least = nullptr;
    for (const auto& hunt : hunts) {
      const NotFinite& f = hunt->found();
      if (!f.weight.empty()) return &f;
      if (f.origin() && (!least || f.origin()->step < least->origin()->step)) least = &f;
    }
    return least;
  };
  for (int64_t micro = 0; micro < n_micro && (!first() || first()->nan.op.empty()); ++micro) {
    if (which == kStep) fill_inputs(micro);
    (void)run_all(which);
  }
  return first() ? *first() : NotFinite{};
}

Error Trainer::not_finite(const StepReport& report) {
  const NotFinite fault = find_fault(kStep, config_.accumulate);
  const std::string cause = fault.is_found()
                                ? fault.text()
                                : "the first infinite value came from op sqrt of the gradient norm";
  return invalid_argument(cat("step ", report.step, ": the loss is ", number(report.loss),
                              " and the gradient norm ", number(report.grad_norm), "; ", cause,
                              "; ", what_is_kept(), ". Lower --lr, lengthen --warmup or set ",
                              "--grad-clip"));
}

std::string Trainer::what_is_kept() const {
  return config_.out.empty()
             ? "nothing was saved (no --out)"
             : cat("the last good checkpoint in ", config_.out, " is kept, if one was saved");
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
    if (stop.load()) return NAN;
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
    give_batch();
    TEGULA_TRY(run_all(kEval));
    const float loss = TEGULA_TRY(ranks_[0]->sessions[kEval]->fetch("loss")).as<float>()[0];
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
  const NotFinite fault = find_fault(kEval, 1);
  return invalid_argument(
      cat("after step ", step_, " the loss of the ", is_training ? "training" : "validation",
          " split is ", number(loss), fault.is_found() ? "; " : "", fault.text(), "; ",
          config_.out.empty() ? what_is_kept()
                              : cat("no checkpoint in ", config_.out, " is called the best for it"),
          ". Lower --lr, lengthen --warmup or set --grad-clip"));
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
  if (stop.load()) return {};
  sum.eval = e;
  if (on_eval) on_eval(context, e);
  if (!e.is_best) return {};
  if (!config_.out.empty()) {
    if (saved_step_ != step_ && config_.save_every == 0) return {};
    if (saved_step_ != step_) TEGULA_TRY(save());
    best_ = {saved_, step_, e.val_loss};
    return keep_best(config_.out, *best_);
  }
  best_ = {"", step_, e.val_loss};
  return {};
}

std::string Trainer::validation_text(int64_t n_tokens) const {
  const std::span<const int32_t> all = data_.validation();
  return tokenizer_->decode(all.first(std::min(static_cast<size_t>(n_tokens), all.size())));
}

Status Trainer::save() {
  if (config_.out.empty()) return {};
  const WholeStore whole = TEGULA_TRY(whole_store(ranks_, true));
  for (const WeightSpec& w : functions_.weights)
    if (!are_finite(whole.store->find(w.name)))
      return invalid_argument(cat("after step ", step_, " the weight ", w.name,
                                  " is not finite, and is not saved; ", what_is_kept(),
                                  ". Lower --lr, lengthen --warmup or set --grad-clip"));
  saved_ = TEGULA_TRY(
      save_checkpoint(config_, *lock_, texts_, functions_.weights, *whole.store, hashes_, step_));
  saved_step_ = step_;
  return {};
}

// Step number `done` of this run: the first two are measured, and with --check all.
Status Trainer::watched_step(StepReport& report, int64_t done) {
  const bool watches = done < 2 || config_.check;
  for (const auto& run : ranks_) {
    for (size_t i = 0; i < run->sessions.size(); ++i)
      run->sessions[i]->watch(i == kEval ? run->eval_watch.get()
                              : watches  ? run->watch.get()
                                         : nullptr);
    if (watches && run->watch) run->watch->begin(kPoison[done % 2], &run->rank.pool);
    if (watches && !run->watch) run->arena.poison(kPoison[done % 2]);
  }
  auto st = one_step(report);
  if (!st.ok() || !watches) return st;
  for (const auto& run : ranks_) {
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
  const auto of = [&](size_t which) {
    const CompiledRanks& c = plans_[which];
    return c.plans[static_cast<size_t>(rank)]->sent_bytes(c.mesh, c.mesh.at(rank));
  };
  return config_.accumulate * of(kStep) + (config_.accumulate > 1 ? of(kUpdate) : 0);
}

void Trainer::measure_memory(TrainSummary& sum) const {
  int64_t live = 0;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    const RankRun& run = *ranks_[r];
    // On a device only what was written is seen, in whole lines of memory.
    int64_t all_written = run.watch ? run.watch->written_bytes() : run.written_bytes;
    int64_t measured =
        run.watch ? run.watch->claimed_bytes() : round_up(run.written_bytes, kAlignment);
    for (const auto& [name, entry] : run.store) {
      // Made of zeros: what is none now was written. More than its bytes: so was what lies behind.
      const int64_t written = entry.region.touched(0);
      measured += std::max(entry.region.bytes(), written), all_written += written;
    }
    sum.ranks[r].peak_bytes_planned = rank_costs_[r].peak_bytes();
    sum.ranks[r].peak_bytes_measured = measured;
    sum.peak_bytes_measured = std::max(sum.peak_bytes_measured, measured);
    sum.peak_bytes_written = std::max(sum.peak_bytes_written, all_written);
    live += run.rank.memory.live_bytes();
  }
  const ProcessMemory now = process_memory(live);
  sum.process_touched_bytes = now.touched_bytes, sum.process_peak_bytes = now.peak_touched_bytes;
  sum.process_touched_before_bytes = before_.touched_bytes;
  sum.process_allocated_bytes = now.allocated_bytes;
  sum.process_allocated_before_bytes = before_.allocated_bytes;
}

std::string explain_process_memory(const TrainSummary& s) {
  const auto mib = [](int64_t bytes) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f MiB", static_cast<double>(bytes) / (1 << 20));
    return std::string(text);
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

std::vector<int64_t> Trainer::launches() const {
  const Session& main = *ranks_[0]->sessions[kStep];
  std::vector<int64_t> all;
  for (size_t i = 0; i < plan().steps.size(); ++i) all.push_back(main.launches(i));
  return all;
}

Result<TrainSummary> Trainer::run(const std::atomic<bool>& stop) {
  TrainSummary sum;
  std::vector<double> times;
  StepReport report;
  Session& main = *ranks_[0]->sessions[kStep];
  const size_t n_ranks = ranks_.size();
  sum.ranks.resize(n_ranks);
  const int64_t first = step_;
  stats_.assign(main.plan().steps.size(), {});
  while (step_ < config_.steps && !stop.load()) {
    const int64_t done = step_ - first;
    std::vector<int64_t> math, executed, sent;  // of each rank, micro-batches and update
    for (size_t r = 0; r < n_ranks; ++r) {
      math.push_back(ranks_[r]->rank.counters.math_flops);
      executed.push_back(ranks_[r]->rank.counters.executed_flops);
      sent.push_back(group_.sent_bytes(static_cast<int64_t>(r)));
    }
    const bool is_timed = done >= 2 && (!ranks_[0]->rank.device || done < 2 + kTimedDeviceSteps);
    main.collect(is_timed ? &stats_ : nullptr);
    Device* const traced =
        done + 1 == kTracedStep && !config_.timeline.empty() ? ranks_[0]->rank.device : nullptr;
    if (traced) begin_trace(*traced, trace_);
    auto st = watched_step(report, done);
    if (traced) end_trace(*traced, trace_);
    if (!st.ok()) return in_step(std::move(st).error());
    timed_steps_ += int64_t{is_timed};
    sum.flops_per_step_counted = sum.flops_per_step_executed = 0;
    for (size_t r = 0; r < n_ranks; ++r) {
      const Counters& now = ranks_[r]->rank.counters;
      sum.ranks[r].flops_counted = counted_since(now.math_flops, math[r]);
      sum.ranks[r].sent_bytes_counted = group_.sent_bytes(static_cast<int64_t>(r)) - sent[r];
      sum.flops_per_step_counted += sum.ranks[r].flops_counted;
      sum.flops_per_step_executed += counted_since(now.executed_flops, executed[r]);
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
  sum.interrupted = stop.load();
  sum.steps = step_;
  if (!times.empty()) {
    sum.train_loss = report.loss;
    std::nth_element(times.begin(), times.begin() + static_cast<int64_t>(times.size() / 2),
                     times.end());
    sum.step_ms = times[times.size() / 2];
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
  for (size_t r = 0; r < n_ranks; ++r) {
    sum.ranks[r].flops_planned = rank_costs_[r].flops;
    sum.ranks[r].sent_bytes_planned = sent_bytes_a_step(static_cast<int64_t>(r));
  }
  measure_memory(sum);
  sum.compile_ms = compile_ms_;
  sum.device = main.plan().target.name;
  if (Device* device = ranks_[0]->rank.device)
    sum.device_taken_bytes = free_before_ - TEGULA_TRY(device->free_bytes());
  for (const CompiledRanks& c : plans_) sum.host_steps += c.plans[0]->host_steps();
  return sum;
}

}  // namespace tegula
