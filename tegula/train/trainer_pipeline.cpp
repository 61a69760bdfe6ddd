// How a trainer runs the ranks of a pipeline (pipeline.h): each its own list of parts, with all
// micro-batches' inputs at hand.
#include <cstring>
#include <limits>

#include "tegula/base/algorithm.h"
#include "tegula/base/round.h"
#include "tegula/base/text.h"
#include "tegula/ir/hash.h"
#include "tegula/plan/collectives.h"
#include "tegula/plan/memory.h"
#include "tegula/runtime/finite_hunt.h"
#include "tegula/train/device_memory.h"
#include "tegula/train/pipeline.h"
#include "tegula/train/trainer.h"

namespace tegula {

Status Trainer::compile_stages(const Target& target) {
  const std::vector<std::string> cuts = TEGULA_TRY(stages_of(config_, functions_, target));
  // Balanced ones follow each machine's own cores and caches.
  const std::string own = joined(cuts);
  const auto all = TEGULA_TRY(group_.segment().exchange(own));
  for (const std::string& one : all)
    if (one != all[0])
      return invalid_argument(cat("processes would cut the pipeline's stages at other layers (",
                                  one, ", not ", all[0], "): give --stages-at"));
  // Passes rewrite functions in place: what is evaluated is cut while it is as it was built.
  stages_ = TEGULA_TRY(compile_pipeline(config_, functions_, target, cuts));
  eval_stages_ = TEGULA_TRY(compile_pipeline_eval(config_, functions_, target, cuts));
  for (const auto& program : stages_->ranks) rank_costs_.push_back(cost_of_stages(*program));
  notes.insert(notes.end(), stages_->notes.begin(), stages_->notes.end());
  return {};
}

Status Trainer::allocate_stages(RankRun& run, int64_t rank) {
  const auto r = static_cast<size_t>(rank);
  const auto &step = stages_->ranks[r], &eval = eval_stages_->ranks[r];
  const int64_t spare = config_.check ? kSpareBytes : 0;
  run.arena = TEGULA_TRY(Region::between_guards(
      run.rank.memory, std::max(step->arena_bytes(), eval->arena_bytes()) + spare));
  run.flows = TEGULA_TRY(
      Region::between_guards(run.rank.memory, std::max(step->flow_bytes, eval->flow_bytes)));
  const auto where =
      config_.check ? MemoryWatch::Workspaces::kApart : MemoryWatch::Workspaces::kInArena;
  run.watch = TEGULA_TRY(MemoryWatch::create(run.arena, step->plans_that_run(), where));
  if (config_.check)
    run.eval_watch = TEGULA_TRY(MemoryWatch::create(run.arena, eval->plans_that_run(), where));
  // The rank's shares of what its parts read, then the parts themselves.
  const auto at = stages_->mesh.at(rank);
  for (const CompiledStages* stages : {&*stages_, &*eval_stages_})
    for (const auto& [name, value] : stages->values)
      if (value.role != Role::kInput && stages->is_held(name, rank))
        TEGULA_TRY(run.store.get(name, value.type,
                                 local_share(stages->mesh, value.type.shape, value.sharding, at)));
  const ProgramSession::Memory memory{run.arena.data(), run.flows.data()};
  run.step_program = TEGULA_TRY(ProgramSession::create(step, run.rank, run.store, memory));
  run.eval_program = TEGULA_TRY(ProgramSession::create(eval, run.rank, run.store, memory));
  return {};
}

// Ranks of one stage execute the same collectives. (All have one schedule: run_facts.)
Status Trainer::agree_on_stages() {
  return group_.run([&](int64_t rank) {
    uint64_t h = 0;
    for (const CompiledStages* stages : {&*stages_, &*eval_stages_}) {
      const PlannedProgram& p = *stages->ranks[rank];
      const std::vector<uint8_t> runs = p.parts_that_run();
      for (size_t i = 0; i < runs.size(); ++i)
        if (runs[i]) h = mix(h, collectives_hash(*p.plans[i]));
    }
    return group_.agree(rank, "collectives", h);
  });
}

namespace {
// A rank's share of an input of a program.
Share share_of(const CompiledStages& stages, int64_t rank, std::string_view input,
               const Shape& shape) {
  const auto value = stages.values.find(input);
  TEGULA_CHECK(value != stages.values.end(), "the step has no input ", input);
  return local_share(stages.mesh, shape, value->second.sharding, stages.mesh.at(rank));
}
Type type_of(const Share& share) {
  return {DType::kI32, Shape(std::span<const int64_t>(share.extent()))};
}
}  // namespace

// All micro-batches of a step lie there, one behind another.
Status Trainer::bind_stages() {
  const int64_t m = micro_groups(config_).n;
  const Shape shape{config_.batch, config_.row_length()};
  for (size_t i = 0; i < ranks_.size(); ++i) {
    RankRun& run = *ranks_[i];
    const int64_t rank = group_.first_rank() + static_cast<int64_t>(i);
    ProgramSession &step = *run.step_program, &eval = *run.eval_program;
    run.seeds.resize(static_cast<size_t>(m));
    for (const auto& [name, to] :
         {std::pair{"tokens", &RankRun::tokens}, {"targets", &RankRun::targets}}) {
      const int64_t bytes = type_of(share_of(*stages_, rank, name, shape)).bytes(),
                    eval_bytes = type_of(share_of(*eval_stages_, rank, name, shape)).bytes();
      run.*to = TEGULA_TRY(Region::allocate(run.rank.memory, std::max(bytes * m, eval_bytes)));
      auto* const at = static_cast<uint8_t*>((run.*to).data());
      for (int64_t k = 0; k < m && step.has_input(name); ++k)
        TEGULA_TRY(step.bind(name, static_cast<int>(k), at + k * bytes));
      if (eval.has_input(name)) TEGULA_TRY(eval.bind(name, -1, at));
    }
    for (size_t k = 0; k < run.seeds.size() && step.has_input("seed"); ++k)
      TEGULA_TRY(step.bind("seed", static_cast<int>(k), &run.seeds[k]));
    for (const auto& [name, data] : {std::pair{"lr", &lr_}, {"c1", &c1_}, {"c2", &c2_}})
      if (step.has_input(name)) TEGULA_TRY(step.bind(name, -1, data));
  }
  return {};
}

void Trainer::give_stages(int64_t rank, int64_t i) {
  const Type type{DType::kI32, {config_.batch, config_.row_length()}};
  RankRun& run = run_of(rank);
  for (const auto& [name, whole, to] : {std::tuple{"tokens", &tokens_, &RankRun::tokens},
                                        {"targets", &targets_, &RankRun::targets}}) {
    const Share share = share_of(i < 0 ? *eval_stages_ : *stages_, rank, name, type.shape);
    const Type local = type_of(share);
    auto* const at =
        static_cast<uint8_t*>((run.*to).data()) + std::max<int64_t>(i, 0) * local.bytes();
    const TensorRef from = contiguous_ref(whole->data(), type), there = contiguous_ref(at, local);
    for (size_t b = 0; b < share.boxes.size(); ++b)
      copy_elements(part_of(from, share.boxes[b]), part_of(there, share.places[b]));
  }
  if (i >= 0) run.seeds[i] = run.seed;
}

Status Trainer::run_stages(bool is_step) {
  for (int64_t i = 0; is_step && i < micro_groups(config_).n; ++i) fill_inputs(i);
  return group_.run([&](int64_t r) {
    RankRun& run = run_of(r);
    return (is_step ? run.step_program : run.eval_program)->run();
  });
}

// Every process gets to know what the ranks with the last stage and with the update know: losses of
// micro-batches, then the gradient's norm; one number for each, NaN with a mark where nobody has
// it.
Result<std::vector<float>> Trainer::told_by_stages(bool is_step) {
  const auto n = is_step ? static_cast<size_t>(config_.accumulate) : size_t{1};
  struct Told {
    uint32_t is_known = 0;
    float value = 0;
  };
  std::vector<Told> told(n + 1);
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const RankRun& run = *ranks_[i];
    const int64_t rank = group_.first_rank() + static_cast<int64_t>(i);
    const ProgramSession& p = *(is_step ? run.step_program : run.eval_program);
    for (int m = 0; m < (is_step ? static_cast<int>(run.seeds.size()) : 1); ++m)
      if (p.has_result("loss", m))
        told[is_step ? micro_batch(rank, m) : 0] = {1, p.result("loss", m).as<float>()[0]};
    if (p.has_result("grad_norm")) told[n] = {1, p.result("grad_norm").as<float>()[0]};
  }
  const std::string own(reinterpret_cast<const char*>(told.data()), told.size() * sizeof(Told));
  for (const std::string& one : TEGULA_TRY(group_.segment().exchange(own)))
    for (size_t i = 0; i < told.size() && one.size() == own.size(); ++i) {
      Told its;
      std::memcpy(&its, one.data() + i * sizeof(Told), sizeof its);
      if (its.is_known) told[i] = its;
    }
  std::vector<float> out;
  for (const Told& t : told)
    out.push_back(t.is_known ? t.value : std::numeric_limits<float>::quiet_NaN());
  return out;
}

// The scale of the loss, by the rank that follows it.
Result<LossScaleState> Trainer::scale_told_by_stages() {
  if (config_.dtype != "f16") return LossScaleState{};
  std::string own;
  for (const auto& run : ranks_) {
    if (!run->store.find("loss_scale.skipped").data) continue;
    const LossScaleState s = TEGULA_TRY(loss_scale_of(run->store));
    own.assign(reinterpret_cast<const char*>(&s), sizeof s);
  }
  LossScaleState scale;
  for (const std::string& one : TEGULA_TRY(group_.segment().exchange(own)))
    if (one.size() == sizeof scale)
      std::memcpy(static_cast<void*>(&scale), one.data(), sizeof scale);
  return scale;
}

Status Trainer::one_step_in_stages(StepReport& report) {
  TEGULA_TRY(run_stages(true));
  const std::vector<float> told = TEGULA_TRY(told_by_stages(true));
  report.loss = 0;
  for (int64_t m = 0; m < config_.accumulate; ++m) report.loss += told[m];
  report.loss /= static_cast<double>(config_.accumulate);
  report.grad_norm = told.back();
  return {};
}

// The parts of all ranks are looked at in the order in which a micro-batch goes through them.
Result<std::string> Trainer::find_fault_in_stages(bool is_step) {
  struct Hunted {
    size_t part;
    std::unique_ptr<FiniteHunt> hunt;
  };
  std::vector<Hunted> hunts;
  for (const auto& run : ranks_) {
    if (is_step)
      for (const auto& [name, entry] : run->store)
        if (is_sum_of_gradients(name)) (void)run->store.zero(name);
    const auto& sessions = (is_step ? run->step_program : run->eval_program)->sessions();
    for (size_t i = 0; i < sessions.size(); ++i)
      if (sessions[i]) hunts.push_back({i, std::make_unique<FiniteHunt>(*sessions[i])});
  }
  (void)run_stages(is_step);
  // As find_fault() has it: the least text is the first fault.
  std::string own = "~";
  for (const Hunted& h : hunts) {
    const NotFinite& f = h.hunt->found();
    if (!f.is_found()) continue;
    const std::string place = printed("%6zu%8zu ", f.weight.empty() ? h.part + 1 : 0,
                                      f.origin() ? f.origin()->step + 1 : 0);
    own = std::min(own, cat(f.nan.op.empty() && f.weight.empty() ? "#" : "!", place, f.text()));
  }
  constexpr size_t kWords = 16;
  std::string found = "~";
  for (const std::string& one : TEGULA_TRY(group_.segment().exchange(own)))
    found = std::min(found, one);
  return found.size() > kWords ? found.substr(kWords) : "";
}

// Poisoned before a step that is watched; after it, how far they were written, in whole lines as
// they are laid out.
Status Trainer::measure_flows(RankRun& run, uint8_t poison) {
  const int64_t written = run.flows.touched(poison);
  if (written > run.flows.bytes())
    return internal_error(cat("a part of the pipeline wrote ", written, " bytes far into flows of ",
                              run.flows.bytes()));
  run.flow_bytes = std::max(run.flow_bytes, round_up(written, kAlignment));
  return {};
}

}  // namespace tegula
