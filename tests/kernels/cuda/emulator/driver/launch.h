// A launch, and its run to the end: block by block, in the order of their numbers; those of a
// cooperative one in turns.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tests/kernels/cuda/emulator/driver/module.h"

namespace tegula::emulated {

struct Launch {
  const Function* function;
  Dim3 grid, block;
  unsigned dynamic_bytes;
  std::vector<std::vector<std::max_align_t>> arguments;  // a copy of each
  bool is_cooperative = false;                           // its blocks run at once
};

// The launch with its arguments copied, or why a device of these limits could not start it.
Outcome make_launch(const Function* f, Dim3 grid, Dim3 block, unsigned dynamic_bytes,
                    void* const* arguments, bool is_cooperative, Launch& out);

// Shared memory that a block may have, of the device's capability.
unsigned most_shared_bytes();

// Runs it on the calling thread, one launch at a time. kIllegalAddress or kLaunchFailed with the
// kernel, block, thread and reason.
Outcome run(const Launch& launch);

}  // namespace tegula::emulated
