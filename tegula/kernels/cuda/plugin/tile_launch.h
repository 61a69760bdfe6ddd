// A tile program's launch, with what makes it the beginning of another kernel
// (tile_prologue_text.h).
#pragma once

#include "tegula/kernels/cuda/plugin/joinable.h"

namespace tegula::cuda {

class TileLaunch final : public JoinableLaunch {
 public:
  TileLaunch(const JoinableKernel& kernel, std::vector<uint64_t> params, int64_t n_blocks,
             const DeviceCall& call)
      : JoinableLaunch(kernel, std::move(params), n_blocks),
        program(call.program),
        in(call.in.begin(), call.in.end()),
        out(call.out.begin(), call.out.end()) {}
  const tile::Program* const program;
  const std::vector<TensorRef> in, out;
};

}  // namespace tegula::cuda
