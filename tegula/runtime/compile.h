// compile: a function of a module -> a plan, through the passes. The one path for every user:
// train, generate, eager arrays and tests.
#pragma once

#include <string>

#include "tegula/base/memory.h"
#include "tegula/passes/partition.h"
#include "tegula/passes/pipeline.h"
#include "tegula/passes/split.h"
#include "tegula/passes/superopt/search.h"
#include "tegula/plan/program.h"
#include "tegula/runtime/tuner.h"

namespace tegula {

struct CompileOptions {
  PipelineOptions passes;
  PlanOptions plan;
  TuneOptions tune;
  superopt::Trial* trial = nullptr;  // who times what it finds; null: this machine, for this once
  double superopt_seconds = 0;       // how long blocks are searched for faster ones; 0: not at all
  std::shared_ptr<const superopt::RuleSet> rules;  // that it may use; null: those in the tool
};

struct Compiled {
  std::shared_ptr<const Plan> plan;
  std::vector<PassReport> reports;
  double passes_ms = 0;
  double plan_ms = 0;
  double tune_ms = 0;
  std::vector<Recomputed> recomputed;  // without a budget: what is cheaper computed twice
  superopt::Found rewritten;           // what --superopt found
  std::vector<std::string> notes;      // of the tuner, for people
};

// Rewrites the function in place and plans it.
Result<Compiled> compile(const std::shared_ptr<Module>& module, FuncId function,
                         const CompileOptions& options);

struct CompiledProgram {
  std::shared_ptr<const PlannedProgram> planned;
  std::vector<PassReport> reports;
};

// A training step -> the plans of its parts: the passes up to the cut see the whole step, the
// others each part alone. Errors: split's, plan_program's; values recomputed by a budget, which
// only a step that is not cut can have.
Result<CompiledProgram> compile_program(const std::shared_ptr<Module>& module, FuncId step,
                                        const SplitOptions& split, const Schedule& schedule,
                                        const CompileOptions& options);

// Ranks in a row: a process's.
struct RankRange {
  int64_t first = 0, n = -1;  // -1: all from the first one on
};

// A step of one rank -> the plans of ranks of a mesh.
struct CompiledRanks {
  Mesh mesh;
  ShardedStep sharded;
  std::vector<Sharding> params;                    // of the plans' parameters
  int64_t first_rank = 0;                          // of those that were asked for
  std::vector<std::shared_ptr<const Plan>> plans;  // of each; functions that hash alike
                                                   // (ir/hash.h) share one
  std::vector<FuncId> functions;                   // of each; rewritten where it was planned
  std::vector<PassReport> reports;                 // of the first one's
  std::vector<superopt::Found> rewritten;          // of each
  std::vector<std::string> notes;                  // for people
  double passes_ms = 0, plan_ms = 0;
  const std::shared_ptr<const Plan>& plan_of(int64_t rank) const {
    return plans[static_cast<size_t>(rank - first_rank)];
  }
};
// The passes up to the cut see the whole step, the others each rank's part. The step stays in the
// module, with the sharding of every value. Errors: shard's and partition's; ranks whose
// collectives differ, which would wait for one another for ever (of some ranks' alone that is not
// looked at: RankGroup::agree).
Result<CompiledRanks> compile_ranks(const std::shared_ptr<Module>& module, FuncId step,
                                    const ShardOptions& shard, const CompileOptions& options,
                                    RankRange own = {});
// The plans of a function by all ranks of a mesh, or of some: is there a kernel for each collective
// (of a device that has none a note says so), and, of all, do these agree?
Status check_collectives(const Mesh& mesh, std::span<const std::shared_ptr<const Plan>> plans,
                         std::vector<std::string>& notes);
// The plan of rank 0 alone, plans[0] of compile_ranks, where nothing is run: whether the other
// ranks' collectives agree is not looked at.
Result<std::shared_ptr<const Plan>> compile_first_rank(const std::shared_ptr<Module>& module,
                                                       FuncId step, const ShardOptions& shard,
                                                       const CompileOptions& options);

}  // namespace tegula
