#include "tegula/runtime/compile_stages.h"

#include "tegula/ir/hash.h"
#include "tegula/passes/join_sums.h"
#include "tegula/passes/shard_check.h"
#include "tegula/plan/planning.h"
#include "tegula/plan/rank_program.h"
#include "tegula/runtime/rank_group.h"

namespace tegula {

namespace {

const Plan::Port* port_of(const PlannedProgram& p, std::string_view name, bool is_written) {
  const std::vector<uint8_t> runs = p.parts_that_run();
  for (size_t i = 0; i < p.plans.size(); ++i) {
    if (!runs[i]) continue;
    const int at = p.plans[i]->find_param(name);
    if (at < 0) continue;
    const Plan::Port& port = p.plans[i]->params[static_cast<size_t>(at)];
    if (!is_written || port.donated_to >= 0) return &port;
  }
  return nullptr;
}

class StagesCompiler {
 public:
  StagesCompiler(const std::shared_ptr<Module>& module, const StagesOptions& stages,
                 const CompileOptions& options)
      : module_(module), stages_(stages), options_(options), planning_(options.plan) {
    PassOptions& pass = options_.passes.pass;
    pass.target = &options_.plan.target;
    if (!pass.planning) pass.planning = &planning_;
  }

  Result<CompiledStages> run() {
    const PassOptions& pass = options_.passes.pass;
    if (pass.remat != Remat::kNone || pass.memory_bytes > 0)
      return unsupported(
          "a step that is cut into stages keeps what flows between them: leave out --memory and "
          "--checkpoint, or take more micro-batches");
    out_.cuts = stages_.split.cuts;
    out_.mesh.axes = {{std::string(kPipelineAxis), stages_.schedule.shape.n_ranks}};
    const Mesh& inner = stages_.mesh;
    out_.mesh.axes.insert(out_.mesh.axes.end(), inner.axes.begin(), inner.axes.end());
    for (const StagedFunction& f : stages_.functions) TEGULA_TRY(prepare(f));
    options_.passes.from = PassPhase::kPartition, options_.passes.until = kAllPhases;
    std::vector<const Ranks*> of_inner;
    for (int64_t r = 0; r < inner.n_ranks(); ++r) of_inner.push_back(TEGULA_TRY(plan_inner(r)));
    for (int i = 0; i < out_.n_pipeline(); ++i)
      for (const Ranks* ranks : of_inner) out_.ranks.push_back((*ranks)[static_cast<size_t>(i)]);
    for (size_t part = 0; part < (*of_inner[0])[0]->plans.size(); ++part) {
      std::vector<std::shared_ptr<const Plan>> plans;
      for (const Ranks* ranks : of_inner) plans.push_back((*ranks)[0]->plans[part]);
      TEGULA_TRY(check_collectives(inner, plans, out_.notes));
    }
    return std::move(out_);
  }

 private:
  using Ranks = std::vector<std::shared_ptr<const PlannedProgram>>;  // along the pipeline

  // The passes that see all of it, and where everything lies.
  Status prepare(const StagedFunction& f) {
    TEGULA_TRY(check_function(*module_, f.function, "compile_stages"));
    options_.passes.until = PassPhase::kPartition;
    auto reports = TEGULA_TRY(run_passes(*module_, f.function, options_.passes));
    out_.reports.insert(out_.reports.end(), reports.begin(), reports.end());
    ShardedStep& sharded = sharded_.emplace_back();
    if (f.shard.mesh.n_ranks() > 1) {
      sharded = TEGULA_TRY(shard(*module_, (*module_)[f.function], f.shard));
      TEGULA_TRY(check_shardings(*module_, (*module_)[f.function], sharded));
      module_->mesh = f.shard.mesh, (*module_)[f.function].shardings = sharded.values;
    }
    const Function& of = (*module_)[f.function];
    for (const Param& p : of.params) {
      Sharding s(out_.mesh.axes.size());
      // Along an axis whose ranks run the function each for itself there is nothing to share.
      for (size_t a = 0; a < stages_.mesh.axes.size() && !sharded.values.empty(); ++a)
        if (f.shard.mesh.axes[a].size == stages_.mesh.axes[a].size)
          s[a + 1] = sharded.values[p.value][a];
      out_.values.try_emplace(p.name, StageValue{of.type(p.value), p.role, std::move(s)});
    }
    return {};
  }

  Result<const Ranks*> plan_inner(int64_t rank) {
    std::vector<FuncId> own;
    std::vector<uint64_t> hashes;
    for (size_t i = 0; i < stages_.functions.size(); ++i) {
      const FuncId whole = stages_.functions[i].function;
      own.push_back(sharded_[i].values.empty()
                        ? whole
                        : TEGULA_TRY(partition(*module_, whole, sharded_[i],
                                               rank_in(stages_.functions[i].shard.mesh, rank))));
      hashes.push_back(hash_of(*module_, (*module_)[own.back()]));
    }
    Ranks& ranks = known_[hashes];
    if (!ranks.empty()) return &ranks;
    const Program program = own.size() == 1
                                ? TEGULA_TRY(split(*module_, own[0], stages_.split))
                                : TEGULA_TRY(split_stages(*module_, own[0], own[1], stages_.split));
    std::vector<std::shared_ptr<const Plan>> plans;
    for (const Part& part : program.parts) {
      Compiled c = TEGULA_TRY(compile(module_, part.function, options_));
      if (known_.size() == 1)
        out_.reports.insert(out_.reports.end(), c.reports.begin(), c.reports.end());
      plans.push_back(std::move(c.plan));
    }
    const auto joins = TEGULA_TRY(plan_joins(program));
    for (PlannedProgram& p :
         TEGULA_TRY(plan_ranks(program, plans, joins, stages_.groups, stages_.schedule)))
      ranks.push_back(std::make_shared<PlannedProgram>(std::move(p)));
    return &ranks;
  }

  // The rank's number in a mesh whose axes may be of size 1 where its own are not.
  int64_t rank_in(const Mesh& mesh, int64_t rank) const {
    const auto at = stages_.mesh.at(rank);
    int64_t number = 0;
    for (size_t a = 0; a < at.size(); ++a)
      number = number * mesh.axes[a].size + (mesh.axes[a].size > 1 ? at[a] : 0);
    return number;
  }

  Result<std::vector<std::shared_ptr<const Plan>>> plan_joins(const Program& program) {
    std::vector<std::shared_ptr<const Plan>> joins;
    if (stages_.groups.groups == 1) return joins;
    joins.resize(program.parts.size());
    for (size_t i = 0; i < program.parts.size(); ++i) {
      const Part& part = program.parts[i];
      if (!is_per_micro_batch(part.kind)) continue;
      const FuncId f = TEGULA_TRY(join_sums(*module_, part.function, cat("join.", part.stage)));
      if (f != kNone) joins[i] = TEGULA_TRY(compile(module_, f, options_)).plan;
    }
    return joins;
  }

  const std::shared_ptr<Module>& module_;
  const StagesOptions& stages_;
  CompileOptions options_;
  const PlanningFor planning_;
  std::vector<ShardedStep> sharded_;  // of each function; without values: it is not sharded
  std::map<std::vector<uint64_t>, Ranks> known_;
  CompiledStages out_;
};

}  // namespace

bool CompiledStages::is_held(std::string_view name, int64_t rank) const {
  return port_of(*ranks[static_cast<size_t>(rank)], name, false) != nullptr;
}

bool CompiledStages::is_writer(std::string_view name, int64_t rank) const {
  const auto value = values.find(name);
  TEGULA_CHECK(value != values.end(), "the step has no ", name);
  const auto place = mesh.at(rank);
  for (size_t a = 1; a < place.size(); ++a)
    if (!value->second.sharding[a].is_split() && place[a] != 0) return false;
  // A weight that no update changes, the first rank of the pipeline that holds it writes.
  const auto group = mesh.group(rank, 0);
  for (const bool is_written : {true, false})
    for (int64_t r : group)
      if (port_of(*ranks[static_cast<size_t>(r)], name, is_written)) return r == rank;
  return false;
}

int64_t CompiledStages::sent_bytes(int64_t rank) const {
  const PlannedProgram& p = *ranks[static_cast<size_t>(rank)];
  int64_t sum = p.message_bytes(at(rank));
  const auto place = mesh.at(rank);
  for (const PartRun& r : p.order)
    sum += p.plans[static_cast<size_t>(r.part)]->sent_bytes(mesh, place);  // joins send nothing
  return sum;
}

Result<CompiledStages> compile_stages(const std::shared_ptr<Module>& module,
                                      const StagesOptions& stages, const CompileOptions& options) {
  if (!module) return invalid_argument("compile_stages: there is no module");
  return StagesCompiler(module, stages, options).run();
}

}  // namespace tegula
