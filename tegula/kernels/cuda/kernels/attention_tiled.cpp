// The second rung: tiles of keys pass through shared memory, softmax runs online.
#include "tegula/kernels/cuda/describe/attention_rung_query.h"

namespace tegula::cuda {

extern constinit const KernelDef attention_tiled{
    .name = "attention_tiled",
    .op = "attention",
    .device = DeviceKind::kCuda,
    .order = "tiled_online",
    .doc = "rung 2: tiles in shared memory, online softmax, f32 units",
    .priority = -1,
    .supports = [](const KernelQuery& q) { return rung_supports(q, false); },
};

}  // namespace tegula::cuda
