// A tile program as what another kernel does first: each of its blocks makes all results, in shared
// memory, and reads one of them there; all blocks together also write them to where they belong. So
// no result may lie where the program or another block reads. The bits are those of the program's
// own kernel: order "lane16" does not depend on how many threads there are.
#pragma once

#include <string>

#include "tegula/kernels/cuda/tile_layout.h"

namespace tegula::cuda {

// In the namespace: a struct Prologue of the call's parameters, kResults, and prologue(p, results),
// which gives every thread of a block where output `wanted` is in that shared memory, float4
// results[kResults]. call: of one block; out: contiguous.
std::string tile_prologue_text(const tile::Program& p, const TileCall& call,
                               std::span<const TensorRef> out, size_t wanted,
                               const char* name_space = "tegula::cuda::tile");
// Bytes of kResults.
int64_t tile_results_bytes(std::span<const TensorRef> out);
// Shared memory of it.
int64_t tile_prologue_bytes(const tile::Program& p, const TileCall& call,
                            std::span<const TensorRef> out);

}  // namespace tegula::cuda
