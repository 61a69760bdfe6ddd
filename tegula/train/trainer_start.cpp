// A trainer's work before its first step: files, data, plans, memory, weights.

#include "tegula/base/algorithm.h"
#include "tegula/base/clock.h"
#include "tegula/base/saturating.h"
#include "tegula/io/run_directory.h"
#include "tegula/models/checkpoint.h"
#include "tegula/models/rotary.h"
#include "tegula/train/deal.h"
#include "tegula/train/device_memory.h"
#include "tegula/train/pipeline.h"
#include "tegula/train/ranks.h"
#include "tegula/train/run_facts.h"
#include "tegula/train/trainer.h"
#include "tegula/train/utilisation.h"

namespace tegula {

namespace {

std::vector<std::string> names_of(const std::vector<TextFile>& files) {
  std::vector<std::string> names;
  for (const TextFile& file : files) names.push_back(file.path);
  return names;
}
}  // namespace

Result<std::unique_ptr<Trainer>> Trainer::create(TrainConfig config,
                                                 void (*on_planned)(const Trainer&),
                                                 Segment* segment) {
  std::unique_ptr<Trainer> t(segment ? new Trainer(std::move(config), *segment)
                                     : new Trainer(std::move(config)));
  const TrainConfig& c = t->config_;
  t->group_.segment().slow(TEGULA_TRY(link_speed_of_environment()));
  if (c.steps > 0 && c.steps <= c.warmup)
    t->notes.push_back(cat("--steps ", c.steps, " ends within --warmup ", c.warmup,
                           ": the learning rate only rises, to ", learning_rate(c, c.steps - 1),
                           " of --lr ", c.lr));
  for (auto step :
       {&Trainer::find_origin, &Trainer::open_origin, &Trainer::load_data, &Trainer::compile_plans})
    TEGULA_TRY((t.get()->*step)());
  if (on_planned) on_planned(*t);
  for (auto step : {&Trainer::allocate, &Trainer::init_or_resume, &Trainer::bind_all})
    TEGULA_TRY((t.get()->*step)());
  return t;
}

// The first process has the directory, and says where the others find what they go on from.
Status Trainer::find_origin() {
  const std::string found = is_speaker() ? TEGULA_TRY(lock_output()) : "";
  const std::string path = TEGULA_TRY(group_.segment().exchange(found))[0];
  if (path.empty()) return {};
  from_ = TEGULA_TRY(ModelFiles::open(path, Check::kSizes));  // it was verified
  return take_model_of(*from_, config_, notes);
}

// Before any file is opened, so that what is read of the directory stays true. The checkpoint to go
// on from; "": none.
Result<std::string> Trainer::lock_output() {
  const std::string& out = config_.out;
  if (out.empty()) return std::string();
  // A directory that holds no run to go on with gets no directories for one.
  if (config_.resume && !path_exists(join_path(out, "checkpoints")))
    return latest_good(out).error();
  TEGULA_TRY(check_run_directory(out, config_.resume      ? RunStart::kResume
                                      : config_.overwrite ? RunStart::kOverwrite
                                                          : RunStart::kNew));
  // To be overwritten, it stays what it is until there is something to put in its place.
  if (!config_.overwrite) TEGULA_TRY(mark_run_directory(out));
  lock_ = std::make_unique<FileLock>(TEGULA_TRY(lock_checkpoints(out)));
  if (config_.overwrite) return std::string();
  TEGULA_TRY(restore_links(out));
  auto found = latest_good(out);
  if (!config_.resume) {
    if (!found.ok()) return std::string();
    return invalid_argument(cat("'", out, "' holds a run, saved at step ", found->step,
                                ": --resume goes on with it; to train anew, choose another --out ",
                                "or give --overwrite"));
  }
  const GoodCheckpoint good = TEGULA_TRY(std::move(found));
  for (const std::string& damage : good.rejected)
    notes.push_back(cat("damaged: ", damage, ": going on from step ", good.step));
  return good.path;
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
  if (config_.out.empty() || config_.overwrite || !is_speaker()) return {};
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
  const Stopwatch watch;
  Device* device = nullptr;
  if (config_.device == "cuda") {
    if (!is_alone())
      return unsupported("--mesh: the ranks of a mesh run on the CPU: leave out --device cuda");
    if (config_.check)
      return unsupported("--check watches the CPU's kernels: leave out --device cuda");
    device = TEGULA_TRY(open_device());
    free_before_ = TEGULA_TRY(device->free_bytes());
  }
  // Threads are each rank's.
  const int threads = config_.threads > 0 || is_alone()
                          ? config_.threads
                          : std::max(1, usable_cores() / static_cast<int>(n_ranks()));
  for (int64_t r = 0; r < group_.n_own(); ++r) {
    ranks_.push_back(device ? std::make_unique<RankRun>(*device)
                            : std::make_unique<RankRun>(threads));
    if (!is_alone()) group_.join(ranks_.back()->rank, group_.first_rank() + r);
  }
  Target target = device ? device->target() : Target::this_cpu(ranks_[0]->rank.pool.n_threads());
  group_.describe_links(target);
  if (config_.device_memory_bytes > 0) {
    const DeviceFit fit =
        TEGULA_TRY(fit_device_memory(config_, target, config_.device_memory_bytes));
    config_.memory_bytes = fit.arena_budget_bytes;
    if (fit.arena_budget_bytes > 0)
      notes.push_back(cat("--device-memory: activations are recomputed to fit: ",
                          fit.memory.total_bytes(), " bytes of ", config_.device_memory_bytes));
  }
  TEGULA_TRY(agree_on_run(target));
  functions_ = TEGULA_TRY(build_step_functions(config_));
  order_ = dealt_order(config_);
  if (has_pipeline(config_)) {
    TEGULA_TRY(compile_stages(target));
    compile_ms_ = watch.ms();
    cost_ = TEGULA_TRY(cost_of_ranks(rank_costs_));
    return {};
  }
  const auto add = [&](FuncId f) -> Status {
    plans_.push_back(TEGULA_TRY(
        compile_for_ranks(config_, functions_, f, target, {group_.first_rank(), group_.n_own()})));
    return {};
  };
  for (const StepPart& part : parts_of_step(config_, functions_)) {
    TEGULA_TRY(add(part.function));
    if (plans_.size() > 1) continue;
    compile_ms_ = watch.ms();
    TEGULA_TRY(add(functions_.eval_loss));
  }
  TEGULA_TRY(count_costs(target));
  if (device) {
    std::vector<const Plan*> all;
    for (size_t i = 0; i < plans_.size(); ++i)
      all.insert(all.end(), static_cast<size_t>(n_sessions(i)), plans_[i].plans[0].get());
    const DeviceMemory needs = device_memory(target, all, cost_.state_bytes);
    if (needs.total_bytes() > free_before_)
      return more_than_free(config_, target, needs, free_before_);
  }
  for (const CompiledRanks& plan : plans_)
    notes.insert(notes.end(), plan.notes.begin(), plan.notes.end());
  return {};
}

// Each process prices its own ranks' plans.
Status Trainer::count_costs(const Target& target) {
  rank_costs_.resize(static_cast<size_t>(n_ranks()));
  std::vector<int64_t> recomputed(rank_costs_.size());
  const RankRange own{group_.first_rank(), group_.n_own()};
  int64_t flops = 0;
  for (int64_t r = own.first; r < own.first + own.n; ++r) {
    StepCost& cost = rank_costs_[r];
    cost = TEGULA_TRY(step_cost(config_, plans_of_step(r)));
    flops = saturating_add(flops, cost.flops);
  }
  recomputed[own.first] = TEGULA_TRY(tegula::recomputed_flops(config_, target, flops, own));
  TEGULA_TRY(exchange(group_, rank_costs_));
  TEGULA_TRY(exchange(group_, recomputed));
  cost_ = TEGULA_TRY(cost_of_ranks(rank_costs_));
  for (const int64_t n : recomputed) recomputed_flops_ += n;
  return {};
}

Status Trainer::allocate() {
  for (int64_t rank = group_.first_rank(); rank < group_.first_rank() + group_.n_own(); ++rank) {
    RankRun& run = run_of(rank);
    if (is_staged()) {
      TEGULA_TRY(allocate_stages(run, rank));
      continue;
    }
    int64_t bytes = 0;
    for (const CompiledRanks& c : plans_) bytes = std::max(bytes, c.plan_of(rank)->arena_bytes);
    Device* device = run.rank.device;
    const int64_t spare = config_.check || device ? kSpareBytes : 0;
    run.arena = TEGULA_TRY(device ? Region::on(device, run.rank.memory, bytes + spare)
                                  : Region::between_guards(run.rank.memory, bytes + spare));
    if (!device) TEGULA_TRY(make_watches(run, rank));
    for (size_t i = 0; i < plans_.size(); ++i) {
      auto& sessions = run.sessions.emplace_back();
      for (int64_t slot = 0; slot < n_sessions(i); ++slot)
        sessions.push_back(
            std::make_unique<Session>(plans_[i].plan_of(rank), run.rank, run.arena.data()));
    }
    if (memory_nodes() > 1 && !device) run.sessions[kStep][0]->touch_arena();
  }
  if (is_staged()) return agree_on_stages();
  return is_alone() ? Status() : agree_on_collectives(group_, plans_);
}

// Processes that are not alike would train something, or wait for one another for ever.
Status Trainer::agree_on_run(const Target& target) {
  if (group_.segment().n_processes() == 1) return {};
  const std::string mine = to_text(run_facts(config_, hashes_, target));
  return check_runs(TEGULA_TRY(group_.segment().exchange(mine)), group_.n_own());
}

Status Trainer::make_watches(RankRun& run, int64_t rank) {
  const auto where =
      config_.check ? MemoryWatch::Workspaces::kApart : MemoryWatch::Workspaces::kInArena;
  run.watch = TEGULA_TRY(MemoryWatch::create(run.arena, plans_of_step(rank), where));
  const Plan* eval[] = {plans_[kEval].plan_of(rank).get()};
  if (config_.check) run.eval_watch = TEGULA_TRY(MemoryWatch::create(run.arena, eval, where));
  return {};
}

Status Trainer::init_or_resume() {
  for (int64_t r = group_.first_rank(); r < group_.first_rank() + group_.n_own(); ++r)
    for (size_t i = 0; i < plans_.size(); ++i)
      for (int64_t slot = 0; slot < n_sessions(i); ++slot)
        TEGULA_TRY(bind_shares(*run_of(r).sessions[i][slot], run_of(r).store, plans_[i], r, slot));
  const auto stores = stores_of(ranks_);
  if (config_.resume) {
    step_ =
        TEGULA_TRY(load_training_state(config_, *from_, hashes_, stores, notes, state_elsewhere()));
    saved_ = from_->path(), saved_step_ = step_;
    loss_scale_ = TEGULA_TRY(loss_scale_of(*stores[0]));
    best_ = best_checkpoint(config_.out);
    // A crash may have come between the two halves of naming it.
    if (is_staged()) loss_scale_ = TEGULA_TRY(scale_told_by_stages());
    return best_ && is_speaker() ? keep_best(config_.out, *best_) : Status();
  }
  TEGULA_TRY(
      start_weights(config_, from_.get(), functions_.weights, stores, ranks_[0]->rank.pool, notes));
  for (Store* store : stores) TEGULA_TRY(init_loss_scale(*store, config_.loss_scale));
  loss_scale_ = TEGULA_TRY(is_staged() ? scale_told_by_stages() : loss_scale_of(*stores[0]));
  if (!config_.overwrite || config_.out.empty() || !is_speaker()) return {};
  TEGULA_TRY(clear_run_directory(config_.out, names_of(texts_)));
  return mark_run_directory(config_.out);
}

Status Trainer::bind_all() {
  const auto n = static_cast<size_t>(config_.batch * config_.row_length());
  tokens_.resize(n), targets_.resize(n);
  if (is_staged()) return bind_stages();
  const TensorRef whole =
      contiguous_ref(tokens_.data(), {DType::kI32, {config_.batch, config_.row_length()}});
  for (size_t i = 0; i < ranks_.size() && !is_alone(); ++i)
    for (const auto& [name, at] :
         {std::pair{"tokens", &RankRun::tokens}, {"targets", &RankRun::targets}}) {
      const int64_t rank = group_.first_rank() + static_cast<int64_t>(i);
      const int64_t bytes = std::max(share_bytes(plans_[kStep], rank, name, whole),
                                     share_bytes(plans_[kEval], rank, name, whole));
      (*ranks_[i]).*at = TEGULA_TRY(Region::allocate(ranks_[i]->rank.memory, bytes));
    }
  struct Input {
    const char* name;
    void* data;
  };
  for (const auto& run : ranks_)
    for (const auto& of_plan : run->sessions)
      for (const auto& s : of_plan)
        for (const Input& in : {Input{"tokens", is_alone() ? tokens_.data() : run->tokens.data()},
                                {"targets", is_alone() ? targets_.data() : run->targets.data()},
                                {"lr", &lr_},
                                {"c1", &c1_},
                                {"c2", &c2_},
                                {"seed", &run->seed}})
          if (s->plan().find_param(in.name) >= 0) TEGULA_TRY(s->bind_input(in.name, in.data));
  return {};
}

}  // namespace tegula
