// The work of a launch of attention, for the run's counters.
#pragma once

#include "tegula/kernels/cpu/common/attention.h"
#include "tegula/kernels/device.h"

namespace tegula::cuda {

// FLOPs as the op counts them: of the (query, key) pairs that are seen, and of the rows that see
// any. Lengths of packed or paged sequences lie on the device: there they are the bounds, as in the
// plan.
int64_t attention_flops(const kernel::AttentionCall& c, bool is_backward);

// Adds them to the call's counters. Errors: those of parse_attention.
Status count_attention(const DeviceCall& call, bool is_backward);

}  // namespace tegula::cuda
