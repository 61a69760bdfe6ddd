// A kernel's claim on its workspace.
#pragma once

#include "tegula/kernels/kernel.h"

namespace tegula::kernel {

// Touches the end of what a kernel has laid out. Which threads touch their part differs from run to
// run; what the kernel took does not, and the measured peak of memory is what was taken.
static inline void claim_workspace(const KernelCall& call, int64_t bytes) {
  if (bytes > 0) static_cast<volatile unsigned char*>(call.workspace)[bytes - 1] = 0;
}

}  // namespace tegula::kernel
