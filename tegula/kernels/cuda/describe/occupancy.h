// Occupancy of a GPU by a kernel, from what it takes: how many of its blocks a multiprocessor holds
// at once, and what keeps it from more.
//
//   blocks of a multiprocessor = min over { threads, blocks, registers, shared memory }
//   active threads = multiprocessors · blocks · threads of a block
//   a wave = multiprocessors · blocks;  waves = blocks of the grid / a wave
//   bytes under way that keep memory busy = latency · bandwidth   [Little 1961]
//
// Registers go to warps, 256 at a time, within a quarter of the multiprocessor's; shared memory to
// blocks, 128 bytes at a time, with 1 KiB of the system's own each.
// Source: CUDA C++ Programming Guide, table of technical specifications by compute capability;
// Lindholm et al. 2008 for warps and multiprocessors.
#pragma once

#include <array>
#include <string_view>

#include "tegula/kernels/target.h"

namespace tegula::cuda {

// The limits of a multiprocessor.
struct MultiprocessorLimits {
  int threads = 0, blocks = 0, registers = 65536;
  int64_t smem_bytes = 0;
};
MultiprocessorLimits multiprocessor_limits(int capability);

// The resources that a kernel takes.
struct KernelUse {
  int threads = 0;         // of a block
  int registers = 0;       // of a thread
  int64_t smem_bytes = 0;  // of a block, declared and asked for at launch
};

struct Occupancy {
  // Blocks of a multiprocessor that each resource has room for.
  struct Limit {
    std::string_view by;
    int blocks;
  };
  std::array<Limit, 4> limits;
  int blocks = 0;              // of a multiprocessor: the least of them
  std::string_view limited;    // by which; of several that are equal the first
  double share = 0;            // active warps, of those that it could have
  int64_t active_threads = 0;  // of the whole device
};

// invalid_argument for what no block may be: no threads or above 1,024, registers above 255, shared
// memory above a block's.
Result<Occupancy> occupancy_of(const Target& gpu, const KernelUse& use);

// A grid in waves: the last may be a part.
struct Waves {
  int64_t wave = 0, whole = 0, tail = 0;  // blocks at once; whole waves; blocks of the last part
  double efficiency = 1;                  // of the time in which all multiprocessors could work
};
Waves waves_of(const Target& gpu, const Occupancy& occupancy, int64_t grid_blocks);

}  // namespace tegula::cuda
