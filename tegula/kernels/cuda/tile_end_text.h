// A tile program of elements as what another kernel does last with each element that it makes: some
// of the program's inputs are handed to it, the others it reads where they lie.
#pragma once

#include <string>

#include "tegula/kernels/cuda/tile_layout.h"

namespace tegula::cuda {

// In the namespace: a struct End of the call's parameters, and element(p, i, given) for position i
// in row-major order. of[k]: which of `given` input k is, or -1. call: its inputs that are given
// have TileAccess::kGiven, its vectors one element.
std::string tile_end_text(const tile::Program& p, const TileCall& call, std::span<const int> of,
                          const char* name_space = "tegula::cuda::end");

}  // namespace tegula::cuda
