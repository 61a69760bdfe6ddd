// Bytes that a rank holds at its worst moment in a training step, by class.
//
//   weights      w·n        w, g, o: bytes of one parameter (state_bytes); n: parameters of the
//   gradients    g·n        rank's stage, cut by tp (norms and router are not) and ep
//   optimizer    o·n        ZeRO 1 shards o, 2 also g, 3 also w, over dp·cp (experts: dp·cp/ep)
//   activations  Σ saved tensors of every layer and of every micro-batch in flight
//   temporaries  gradients of activations of one layer, or what it computes again; the head's block
//                of logits; with ZeRO 3 two layers' gathered weights
// The last two by liveness where plans of few layers are known (live_table.h), else by formula.
// In flight at stage i of p, with m micro-batches: GPipe m, TeraPipe m·T slices; 1F1B min(m, p −
// i); zero bubble min(m, p), its second form min(m, 2p − 1); ZB-V min(p, m, (m + 1 + i)/2);
// interleaved v: (2(p − i − 1) + (v − 1)p + 1)/v, with a little more than p where m is no multiple
// of it; Chimera, of at most p/2 each way, min(⌈m/2⌉, p − i) + min(⌊m/2⌋, i + 1); DualPipe p + 1.
// [Narayanan et al. 2021, section 2.2; Qi et al. 2023; Li and Hoefler 2021; DeepSeek-V3 2024]
// Chimera and DualPipe hold two stages' weights, gradients and state a rank; ZeRO shards over both
// ranks of a stage.
#pragma once

#include <array>

#include "tegula/planner/layer_work.h"
#include "tegula/planner/print.h"
#include "tegula/planner/stages.h"
#include "tegula/planner/timeline.h"

namespace tegula::planner {

struct MemoryBytes {
  double weights = 0, gradients = 0, optimizer = 0, activations = 0, temporaries = 0;
  // Copies that products read, gathered weights, buckets of gradients; what is never there together
  // with the rest (gradients are made while activations go).
  double copies = 0, apart = 0;
  double total() const {
    return weights + gradients + optimizer + activations + temporaries + copies - apart;
  }
  std::array<Part, 7> parts() const;  // the last one negative
};

// Parameters that a rank holds before ZeRO.
struct RankParams {
  double layer = 0;            // of a layer, without experts that ep cuts
  double experts = 0;          // of a layer, those of this rank; 0: dense, counted above
  double first = 0, last = 0;  // embedding and positions; head and final norm
};
RankParams rank_params(const ModelSpec& model, const ParamCount& count, const Layout& layout);

// The bytes that one layer, the embedding and the head keep of a micro-batch.
struct ActivationBytes {
  double layer = 0, first = 0, last = 0;
  double working = 0;  // gradients of a layer's activations, and what it computes again
  double logits = 0;   // of the head at a time
  // By liveness: then `working` is only what a layer computes again. Null: by formula.
  const LayerLive* live = nullptr;
};
// "weights 1.20 GB + gradients 0.30 + …", of those that are there.
std::string memory_text(const MemoryBytes& memory);
ActivationBytes activation_bytes(const ModelSpec& model, const LayerWork& layer,
                                 const LayerWork& embedding, const LayerWork& head,
                                 const RankShape& shape, Remat remat);
// The same by the plans of few layers. What they have not, sequence parallelism and selective
// recomputation, is taken off as built_saves.h counts it.
ActivationBytes activation_bytes(const ModelSpec& model, const LayerLive& live,
                                 const RankShape& shape, Remat remat);

// Layers' worth of micro-batches (of slices, if there are any) in flight at a rank whose stage has
// `n_layers` layers.
double layers_in_flight(const Layout& layout, int64_t n_microbatches, int64_t rank,
                        int64_t n_layers);

MemoryBytes stage_memory(const ModelSpec& model, const Layout& layout, const Job& job,
                         const RankParams& params, const ActivationBytes& activations, int64_t rank,
                         const RankStages& stages);

}  // namespace tegula::planner
