#include "tegula/kernels/cpu/isa/read_burst.h"

#include "tegula/kernels/cpu/isa/vec.h"

namespace tegula::kernel::TEGULA_ISA_NS {

// Eight chains, so that additions keep up with loads; every loop over them is unrolled, or they
// would live in memory.
void read_burst(const ReadBurst& b) {
  Vf acc[8];
#pragma GCC unroll 8
  for (int c = 0; c < 8; ++c) acc[c] = zero();
  for (int64_t i = 0; i + 8 * kLanes <= b.n; i += 8 * kLanes) {
#pragma GCC unroll 8
    for (int c = 0; c < 8; ++c) acc[c] = acc[c] + load(b.data + i + c * kLanes);
  }
#pragma GCC unroll 8
  for (int c = 1; c < 8; ++c) acc[0] = acc[0] + acc[c];
  *b.sum += sum_lanes(acc[0]);
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
