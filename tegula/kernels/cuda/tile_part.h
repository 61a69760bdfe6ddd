// A tile program as part of another kernel: what that does first, or last (tile_prologue_text.h,
// tile_end_text.h).
#pragma once

#include <string>
#include <vector>

#include "tegula/kernels/cuda/tile_layout.h"

namespace tegula::cuda {

struct TilePart {
  const tile::Program* program = nullptr;
  TileCall call;
  std::vector<TensorRef> out;
  size_t wanted = 0;    // of a beginning: the result that is read
  std::vector<int> of;  // of an end: which call's result an input is, or -1
  bool is_there() const { return program != nullptr; }
  // The facts that its text depends on, in a few lines.
  std::string key() const;
};

}  // namespace tegula::cuda
