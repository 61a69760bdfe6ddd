// The tensors that the project's own training graph keeps of a layer for the backward part, tensor
// by tensor, as passes/split finds it in the compiled step: Job::Keeps::kBuilt.
//
// In bf16 the residual stream, statistics, and what elementwise functions make inside the
// feed-forward layer stay f32; what products read is bf16. With T tokens, e bytes an element:
//   residual   4·T·h before attention and before the feed-forward layer
//   norms      e·T·h each, and 4·T (RMS) or 8·T (layer norm) of statistics; norms behind a layer
//              keep their input in f32 instead
//   attention  e·T·(2a + 2k)·d, and 4·T·a of log-sum-exp
//   ff         gated 12·T·f + e·T·f, else 4·T·f + e·T·f; experts over s·E·⌈1.25·T·K/(s·E)⌉
//              rows, s the most of 8, 4, 2 and 1 shards that divide the sequences
#pragma once

#include "tegula/planner/layer_work.h"

namespace tegula::planner {

// Whether there is a list for this model: families that are built, and no naive attention.
bool has_built_saves(const ModelSpec& model, const RankShape& shape);
std::vector<Saved> built_saves(const ModelSpec& model, const RankShape& shape);

}  // namespace tegula::planner
