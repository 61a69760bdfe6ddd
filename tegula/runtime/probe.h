// Probes: what this machine reaches, measured in a few milliseconds. The roofline of reports.
#pragma once

#include "tegula/base/thread_pool.h"

namespace tegula {

struct MachineSpeed {
  double flops_per_s = 0;  // f32 fused multiply-adds on registers, all threads
  double bytes_per_s = 0;  // reading memory well past the caches, all threads
};

// threads 0: all usable cores. Best of several short bursts.
MachineSpeed probe_machine(int threads);

// One burst of f32 multiply-adds on every thread of the pool: FLOPs per second.
double probe_flops(ThreadPool& pool);

}  // namespace tegula
