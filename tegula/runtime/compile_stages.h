// compile_stages: a training step -> what each rank of a mesh with a pipeline does of it.
//
// It is sharded over the mesh without its pipeline and partitioned as ever (compile_ranks); then
// each rank's function is cut into stages by scope (passes/split.h), and every rank gets the plans
// of its own stages, its own list of the schedule and what it exchanges with the others along the
// pipeline (plan/rank_program.h).
#pragma once

#include <map>

#include "tegula/ir/micro_groups.h"
#include "tegula/runtime/compile.h"

namespace tegula {

// One function, a step or what there is of it forward; or two, which a step of several
// micro-batches is split into: micro step and update, each sharded by itself.
struct StagedFunction {
  FuncId function = kNone;
  ShardOptions shard;  // its mesh: without the pipeline; one rank: nothing is sharded
};

struct StagesOptions {
  Mesh mesh;  // without the pipeline; a function's may have ranks of an axis alone, of size 1
  std::vector<StagedFunction> functions;
  MicroGroups groups;  // of the micro-batches
  SplitOptions split;
  Schedule schedule;  // of as many ranks as the pipeline has
};

// A weight, state or input of the step, whole, and where it lies on the mesh with its pipeline: all
// ranks that have a part which reads it hold it alike.
struct StageValue {
  Type type;
  Role role = Role::kInput;
  Sharding sharding;
};

struct CompiledStages {
  Mesh mesh;  // the pipeline's axis first
  std::vector<std::string> cuts;
  std::map<std::string, StageValue, std::less<>> values;
  std::vector<std::shared_ptr<const PlannedProgram>> ranks;
  std::vector<PassReport> reports;  // of the functions, and of the first ranks' parts
  std::vector<std::string> notes;   // for people

  int n_pipeline() const { return static_cast<int>(mesh.axes[0].size); }
  // The rank's place along the pipeline.
  int at(int64_t rank) const { return static_cast<int>(mesh.at(rank)[0]); }
  // Whether it is this rank that makes a weight or state new: of all that hold the same share, the
  // first one of those that have its update.
  bool is_writer(std::string_view name, int64_t rank) const;
  bool is_held(std::string_view name, int64_t rank) const;
  // The bytes that the rank gives others in a step.
  int64_t sent_bytes(int64_t rank) const;
};

// Errors: those of compile_ranks, compile_program and plan_ranks.
Result<CompiledStages> compile_stages(const std::shared_ptr<Module>& module,
                                      const StagesOptions& stages, const CompileOptions& options);

}  // namespace tegula
