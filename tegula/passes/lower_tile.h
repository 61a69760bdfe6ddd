// From the body of a `fused` node to the tile program that a kernel runs.
#pragma once

#include <array>
#include <vector>

#include "tegula/base/memory.h"
#include "tegula/ops/common/fused.h"
#include "tegula/tile/program.h"

namespace tegula {

// How a kernel sees an operand or result: as a view of `shape` whose dim d is the tensor's dim
// dim[d], or has stride 0 where that is -1. Full ones have the iteration space's shape, row ones
// extent 1 in the inner dims, uniform ones in every dim.
struct SpaceView {
  Shape shape;
  std::array<int8_t, kMaxRank> dim;
};

struct TileLowering {
  std::shared_ptr<const tile::Program> program;
  std::vector<SpaceView> in, out;
};

// Depends on the body and the attributes alone: nodes that share a body share the result.
Result<TileLowering> lower_tile(const Module& module, FuncId body, const Attrs& attrs);

// The role of a node in a fused group.
enum class TileRole : uint8_t {
  kNone,         // not to be fused
  kElementwise,  // one tile instruction per element
  kReduction,    // over trailing dims: a row
  kColumns,      // a sum over leading dims, for kernels that add up columns
  kView,         // broadcast, or a reshape that adds or removes dims of extent 1
  kSource,       // scalar constant or iota: made anew wherever it is read
  kRandom,       // of the whole space
};
TileRole tile_role(const Function& f, const Node& n);

}  // namespace tegula
