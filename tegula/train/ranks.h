// Training over the ranks of a mesh: which axis cuts what, and each rank's share of weights, state
// and batch.
//
//   dp   the batch; with accumulation in mode exact whole micro-batches, where they divide so
//   tp   weights along the dims that the model's file names (Cut), so heads and hidden widths
//   cp   the sequence; in mode fast attention is a ring (passes/ring.h), or turns to heads where
//   that
//        moves less; in exact it turns to heads where they can be shared out, or gathers
//   ep   experts, and the batch outside of them
//
// With config.zero, dp also splits optimizer state (1), sums of gradients (2) and weights (3),
// which are then fetched for the products that read them, forward and backward each for itself, the
// next one during the product before it, and dropped after.
//
// [Dean et al. 2012, section 4; Shoeybi et al. 2019 (Megatron-LM), section 3; Jacobs et al. 2023
// (DeepSpeed-Ulysses), section 3; Lepikhin et al. 2020 (GShard), section 3]
#pragma once

#include "tegula/runtime/compile.h"
#include "tegula/runtime/rank_group.h"
#include "tegula/runtime/session.h"
#include "tegula/train/step.h"

namespace tegula {

// The same axes in the order in which ranks are numbered, whatever order they are named in: pp, dp,
// cp, ep, tp; a pipeline of one stage is none. So what ep exchanges within shards of the batch that
// dp has cut is one piece of a dim, and neighbours are those that exchange most.
Mesh in_training_order(Mesh mesh);

// Where the parameters of a step lie. Errors: an axis of another name; a batch or units of the
// model that an axis does not divide, with both numbers.
Result<std::vector<Sharding>> param_shardings(const TrainConfig& config, const Function& step);

// How one of the step's functions is sharded over config.mesh; where dp's ranks run it each for
// itself, over the mesh with one of them. Errors: those of param_shardings; a
// loop whose sums mode exact cannot share.
Result<ShardOptions> shard_options(const TrainConfig& config, const StepFunctions& functions,
                                   FuncId function, const Target& target);

// For people: what the mesh leaves whole, and in which order it deals tokens.
Result<std::vector<std::string>> notes_on_ranks(const TrainConfig& config);

// The plans of ranks of config.mesh, of one of the step's functions.
Result<CompiledRanks> compile_for_ranks(const TrainConfig& config, const StepFunctions& functions,
                                        FuncId function, const Target& target, RankRange own = {});
// Rank 0's alone, where nothing is run.
Result<std::shared_ptr<const Plan>> plan_of_first_rank(const TrainConfig& config,
                                                       const StepFunctions& functions,
                                                       FuncId function, const Target& target);

// A rank's plans, of parts of a step.
std::vector<const Plan*> plans_of_rank(std::span<const CompiledRanks> parts, int64_t rank);

// Before the first step: do all ranks execute the same collectives in these plans? Each compares a
// hash of its own with the others' (RankGroup::agree), as ranks that share no memory would.
Status agree_on_collectives(RankGroup& group, std::span<const CompiledRanks> plans);

// FLOPs of products over all ranks, as a multiple of those of one rank that does the whole step.
struct ProductShares {
  double all = 1;
  double without_uncut = 1;  // without what is listed as done alike by the ranks of an axis
};
// `batch_shares`: of ranks that have a micro-batch each (train/step.h).
ProductShares product_shares(const CompiledRanks& ranks, const Plan& whole, int64_t batch_shares);

// The sharding of a parameter of the compiled step; null: it has none of that name.
const Sharding* sharding_of(const CompiledRanks& ranks, std::string_view param);

// Whether it is this rank that writes a weight or state: of all that hold the same share of it, the
// first one.
bool is_writer(const CompiledRanks& ranks, const Sharding& sharding, int64_t rank);

// Binds a rank's weights and state to its store's shares; sums to those of a slot (train/step.h).
Status bind_shares(Session& session, Store& store, const CompiledRanks& ranks, int64_t rank,
                   int64_t slot = 0);
// A rank's share of an input: its bytes, and the share as dense memory.
int64_t share_bytes(const CompiledRanks& ranks, int64_t rank, std::string_view param,
                    const TensorRef& whole);
void take_share(const CompiledRanks& ranks, int64_t rank, std::string_view param,
                const TensorRef& whole, void* out);

}  // namespace tegula
