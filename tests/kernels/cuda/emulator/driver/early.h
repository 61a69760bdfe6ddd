// With FAKE_CUDA_EARLY=1: what a launch wrote, so that the next one, which may begin while it still
// runs, can be told that it read that before it waited (griddepcontrol.wait). Only loads that a
// kernel writes as instructions are seen.
#pragma once

#include <cstddef>

namespace tegula::emulated {

bool checks_early_loads();
// The device's memory before a launch, and after it.
void begin_writes();
void end_writes();
// Whether the launch before this one changed something there.
bool last_launch_wrote(const void* data, size_t bytes);

}  // namespace tegula::emulated
