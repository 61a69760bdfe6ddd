// A tile program's launch, with what makes it part of another kernel (tile_prologue_text.h,
// tile_end_text.h, persistent_text.h).
#pragma once

#include "tegula/kernels/cuda/plugin/joinable.h"
#include "tegula/kernels/cuda/tile_part.h"

namespace tegula::cuda {

class TileLaunch final : public JoinableLaunch {
 public:
  TileLaunch(const JoinableKernel& kernel, std::vector<uint64_t> params, int64_t n_blocks,
             const DeviceCall& call, TileCall layout)
      : JoinableLaunch(kernel, std::move(params), n_blocks),
        program(call.program),
        tiles(std::move(layout)),
        in(call.in.begin(), call.in.end()),
        out(call.out.begin(), call.out.end()) {}
  const tile::Program* const program;
  const TileCall tiles;                  // of one call; joined ones differ by their parameters
  const std::vector<TensorRef> in, out;  // of the first
};

}  // namespace tegula::cuda
