// The bottom rung: all scores in global memory.
#include "tegula/kernels/cuda/describe/attention_rung_query.h"

namespace tegula::cuda {

extern constinit const KernelDef attention_naive{
    .name = "attention_naive",
    .op = "attention",
    .device = DeviceKind::kCuda,
    .order = "naive",
    .doc = "rung 1: scores in global memory, three kernels",
    .priority = -2,
    .supports = [](const KernelQuery& q) { return rung_supports(q, true); },
    .workspace_bytes =
        [](const KernelQuery& q) {
          const TensorRef &query = q.in[0], &key = q.in[1];
          return query.shape[0] * query.shape[1] * query.shape[2] * key.shape[1] * 4;
        },
};

}  // namespace tegula::cuda
