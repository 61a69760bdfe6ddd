// The GPU as a Device: its primary context, one stream, two events.
#pragma once

#include "tegula/kernels/cuda/driver.h"
#include "tegula/kernels/device.h"

namespace tegula::cuda {

// Number 0 of the devices that the driver shows. Errors: no driver, no device, one too old.
Result<Device*> open_cuda_device();

// "sm_90a": what kernels are compiled for.
std::string arch_of(int capability);

// Device memory of zeros that stays where it is, for counters which a kernel leaves at zero again;
// launches of one stream share it. Where more is asked for than there is, more is taken.
Result<void*> zeroed_memory(int64_t bytes);

}  // namespace tegula::cuda
