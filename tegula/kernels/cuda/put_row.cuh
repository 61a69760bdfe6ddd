// Rows put where their ids say.
#pragma once

#include "tegula/kernels/cuda/ptx/types.cuh"
#include "tegula/kernels/cuda/strided_params.h"

namespace tegula::cuda {

// A warp's task: kRowTaskBytes of a row, or what is left of it. The last of an id's rows stands.
// Rows: the members of RowsParams, which may be constants.
template <class Rows>
__device__ __forceinline__ void put_row(const Rows& p, int task, int lane) {
  const int pieces = (p.bytes + kRowTaskBytes - 1) / kRowTaskBytes;
  const int row = p.n_ids > 1 ? task / pieces : 0;
  const int at = (task - row * pieces) * kRowTaskBytes + 16 * lane;
  const int id = p.ids[row];
  uint4 x{};
  if (at < p.bytes) x = *reinterpret_cast<const uint4*>(p.y + row * p.y_step + at);
  bool is_later = false;
  for (int k = row + 1 + lane; k < p.n_ids; k += 32) is_later = is_later || p.ids[k] == id;
  if (__any_sync(0xffffffffu, is_later) || id < 0 || id >= p.n || at >= p.bytes) return;
  *reinterpret_cast<uint4*>(p.x + id * p.x_step + at) = x;
}

}  // namespace tegula::cuda
