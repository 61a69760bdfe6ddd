// Layout: one way to lay a training step over a cluster. Job: what the step is. Pins: what the user
// has decided already.
//
// Ranks are dp·cp·tp·pp. Experts are spread over ep of the dp·cp ranks that hold the same stage;
// ZeRO shards over all dp·cp of them (experts: over dp·cp/ep). A step's sequences go over dp, each
// rank's in micro-batches of `microbatch` sequences.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tegula/base/memory.h"
#include "tegula/cost/sustained.h"
#include "tegula/planner/cluster.h"
#include "tegula/planner/framework.h"
#include "tegula/planner/model.h"

namespace tegula::planner {

class LiveTable;

// How stages take turns; names as in tegula/plan/schedules.
enum class Turns : uint8_t {
  kGpipe,
  kOneFOneB,
  kInterleaved,
  kZeroBubble,
  kZeroBubbleH2,
  kZeroBubbleV,
  kChimera,
  kDualPipe,
  kTeraPipe
};
inline constexpr Turns kTurns[] = {Turns::kOneFOneB,     Turns::kInterleaved, Turns::kZeroBubble,
                                   Turns::kZeroBubbleH2, Turns::kZeroBubbleV, Turns::kChimera,
                                   Turns::kDualPipe,     Turns::kTeraPipe,    Turns::kGpipe};
std::string_view turns_name(Turns turns);

// How cp cuts a sequence. A ring passes keys and values round: over two pieces a rank, one of
// either end (zigzag), or every cp-th token (striped), so that a causal mask leaves all as much;
// over one piece (contiguous) the last rank attends to (2·cp − 1)/cp of the average. Ulysses turns
// sequences into heads by all-to-alls and back. [Liu et al. 2023; Brandon et al. 2023; Jacobs et
// al. 2023]
enum class ContextCut : uint8_t { kZigzag, kStriped, kContiguous, kUlysses };
inline constexpr ContextCut kContexts[] = {ContextCut::kZigzag, ContextCut::kStriped,
                                           ContextCut::kContiguous, ContextCut::kUlysses};
std::string_view context_name(ContextCut context);

// The part that is computed again in the backward part. Selective: the framework's (Selective).
// Full: whole layers from their input. Every other: every second layer so.
enum class Remat : uint8_t { kNone, kSelective, kFull, kEveryOther };
inline constexpr Remat kRemats[] = {Remat::kNone, Remat::kSelective, Remat::kEveryOther,
                                    Remat::kFull};
std::string_view remat_name(Remat remat);

struct Layout {
  int64_t dp = 1, tp = 1, pp = 1, cp = 1, ep = 1;
  ContextCut context = ContextCut::kZigzag;
  int zero = 0;
  bool sp = false;
  Turns turns = Turns::kOneFOneB;
  int64_t interleave = 1;
  int64_t slices = 1;      // of a micro-batch's tokens, one behind another (TeraPipe)
  int64_t microbatch = 1;  // sequences
  Remat remat = Remat::kNone;

  int64_t devices() const { return dp * tp * pp * cp; }
  int64_t zero_ranks() const { return dp * cp; }
  // Pipelines of opposite directions: each rank holds two stages, each stage lies on two ranks.
  int64_t copies() const { return turns == Turns::kChimera || turns == Turns::kDualPipe ? 2 : 1; }
  // Into how many a stage's layers are cut that one micro-batch passes one by one.
  int64_t chunks() const { return turns == Turns::kZeroBubbleV ? 2 : interleave; }
  // The rank, of the first pipeline's, that has the head: a V ends where it begins.
  int64_t head_rank() const { return turns == Turns::kZeroBubbleV ? 0 : pp - 1; }
  friend bool operator==(const Layout&, const Layout&) = default;
};
std::string to_string(const Layout& layout);

// Whose state is held: Adam with f32 master weights and moments; Adam in the weights' own dtype
// without masters; Adam with moments of 8 bits, no masters [Dettmers et al. 2022]; GaLore, which
// keeps 8-bit moments of gradients projected to a quarter of the rank, and one layer's gradients at
// a time [Zhao et al. 2024]; none.
enum class Optimizer : uint8_t { kAdam, kAdamPure, kAdam8bit, kGalore, kSgd };
Result<Optimizer> parse_optimizer(std::string_view name);

// Whose attention writes its scores: kernels of its own (Megatron's fused softmax), the math
// backend of PyTorch's scaled_dot_product_attention, which takes f32, eager ops of transformers.
enum class Naive : uint8_t { kFused, kMath, kEager };

struct Job {
  int64_t seqlen = 0;
  int64_t batch_tokens = 0;  // of a step, all ranks
  Number dtype = Number::kBf16;
  bool flash = true;  // attention, by `kernel`; else by `naive`
  AttentionKernel kernel = AttentionKernel::kDefault;
  Naive naive = Naive::kFused;
  std::string_view attention() const;  // its name, as --fix has it
  double gradient_bytes = 2;           // of one element; 4: summed in f32
  Optimizer optimizer = Optimizer::kAdam;
  std::optional<Loss> loss;
  std::optional<double> overlap;         // hides_of
  const Framework* framework = nullptr;  // framework.h; null: mixed precision by the book
  std::vector<int64_t> stages;           // layers of each stage; empty: even (stages.h)
  bool is_built = false;  // a layer keeps what the project's own graph does (built_saves.h), not
                          // what mixed precision by the book does
  // Where it has a layer, its bytes are these instead (live_table.h). Null: none.
  std::shared_ptr<const LiveTable> live;
};

// 16 bytes of state a parameter with Adam and 16-bit numbers: 2 weights, 2 gradients, 12 of f32
// master weights and moments. [Rajbhandari et al. 2020, section 3.1] In f32 there is no master.
struct StateBytes {
  double weights = 0, gradients = 0, optimizer = 0;  // of one parameter
};
StateBytes state_bytes(const Job& job, const ModelSpec& model);
// Weights of four bytes that products read as copies of two, which live as long as a step.
bool is_autocast(const Job& job);
Loss loss_of(const Job& job);  // what was fixed, else the framework's

int64_t n_microbatches(const Job& job, const Layout& layout);
// "norms and activations": what is made again, in words.
std::string_view made_again(const Job& job, const Layout& layout);
// The share of the exchange of data parallelism that hides where something else is computed.
double hides_of(const Job& job);

struct Pins {
  std::optional<int64_t> dp, tp, pp, cp, ep, interleave, slices, microbatch;
  std::optional<int> zero;
  std::optional<bool> sp, flash;
  std::optional<AttentionKernel> kernel;  // with flash
  std::optional<Naive> naive;             // without
  std::optional<Loss> loss;
  std::optional<double> overlap;  // Job's
  std::optional<ContextCut> context;
  std::optional<Turns> turns;
  std::optional<Remat> remat;
  std::optional<Number> dtype;
  std::vector<int64_t> stages;  // Job's
  friend bool operator==(const Pins&, const Pins&) = default;
};
// "tp=8,pp=16,zero=1,sp=true,schedule=one_f_one_b,remat=full,attention=flash,dtype=bf16". Errors
// name the key or value, and what there is.
Result<Pins> parse_pins(std::string_view text);

// Whether the layout can be: the first divisibility that fails, with its numbers.
Status check_layout(const Layout& layout, const ModelSpec& model, const ClusterSpec& cluster,
                    const Job& job);
// fully_shard has no stages 0 and 1 of ZeRO.
bool can_be_sharded_so(const Layout& layout, const Job& job);
// Checks, of these, how cp may cut a sequence.
Status check_context(const Layout& layout, const ModelSpec& model, const Job& job);
// "6+6".
std::string stages_name(const std::vector<int64_t>& stages);
// Checks, of these, what a schedule wants of stages, micro-batches and slices.
Status check_turns(const Layout& layout, const ModelSpec& model, const Job& job);
// Refuses what no layout could mend: a batch that is no whole number of sequences, a type that the
// device has not, a sequence that the model does not take.
Status check_job(const ModelSpec& model, const ClusterSpec& cluster, const Job& job);

}  // namespace tegula::planner
