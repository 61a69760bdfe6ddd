// The host's time: a framework in Python launches a step's ops one after another, and where that
// takes longer than the device does, it is the step.
//
//   layer     (modules·module + ops·op) · (2.2 where a layer is recomputed), and what wraps it
//   modules   norms and products; ops: what lies between them, forward, and views
//   step      micro-batches · layers · layer + parameters · (optimizer, DDP)
//
// Measured on an H200's host (Xeon of 2.1 GHz, Python 3.12, PyTorch 2.11) with tensors of 16 × 16:
// bench/layouts_torch.py --part host, bench/results/layouts/host_h200x2_torch.json
// (Sustained::host). Other hosts are some 2 times as fast or 1.6 times as slow; kFast and kSlow say
// so.
#pragma once

#include "tegula/planner/layer_work.h"

namespace tegula::planner {

struct HostOps {
  double modules = 0, others = 0;
};
HostOps host_ops(const LayerWork& layer);
// Seconds of n_layers of so many micro-batches; 0 where no framework executes op by op.
double host_seconds(const Sustained& device, const Job& job, const Layout& layout,
                    const HostOps& layer, int64_t n_layers, int64_t n_microbatches);

}  // namespace tegula::planner
