// The device's work, by its own clock: records of NVIDIA's CUPTI (activity API), found in
// libcupti.so at run time as the driver is. Kernels of a replayed graph have a record each.
#pragma once

#include <vector>

#include "tegula/base/result.h"
#include "tegula/kernels/device.h"

namespace tegula::cuda {

// From here on; until end_activity(), which waits for no stream: that is the caller's. Errors:
// unsupported, with why and what to do, where there is no CUPTI or it may not be used.
Status begin_activity();
// In the order in which they began; the first begins at 0.
Result<std::vector<DeviceSpan>> end_activity();

}  // namespace tegula::cuda
