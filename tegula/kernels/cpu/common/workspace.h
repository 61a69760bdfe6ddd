// A kernel's claim on its workspace.
#pragma once

#include "tegula/kernels/kernel.h"

namespace tegula::kernel {

// Says how much a kernel has laid out. Which threads touch their part differs from run to run; what
// the kernel took does not, and the measured peak of memory is what was taken. That no more was is
// shown from outside, by what lies behind it (runtime/memory_watch.h).
static inline void claim_workspace(const KernelCall& call, int64_t bytes) {
  call.counters->claim(bytes);
}

}  // namespace tegula::kernel
