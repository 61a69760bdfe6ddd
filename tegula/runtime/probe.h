// Probes: what this machine reaches, measured in a few milliseconds. The roofline of reports.
#pragma once

#include <string>

#include "tegula/base/thread_pool.h"
#include "tegula/kernels/tuning.h"

namespace tegula {

struct MachineSpeed {
  double flops_per_s = 0;  // f32 fused multiply-adds on registers, all threads
  double bytes_per_s = 0;  // reading memory well past the caches, all threads
};

// threads 0: all usable cores. Best of several short bursts.
MachineSpeed probe_machine(int threads);

// One thread, while all threads of the pool do the same.
struct CoreSpeed {
  CacheSizes caches;
  double flops_per_s = 0;
  double bytes_per_s[CacheSizes::kLevels + 1] = {};  // reading each cache, and memory
};
// Best of several passes over half of each cache: about 30 ms.
CoreSpeed probe_core(ThreadPool& pool);

// "unknown processor" where the system does not tell.
std::string processor_name();
// The facts that timings depend on besides the call: processor, caches, instruction set, cores.
std::string machine_name();

// The clock for timing kernels: of one thread its own CPU time, so that what others take on a
// shared machine does not count; of several the wall's.
double kernel_seconds(const ThreadPool& pool);

// f32 multiply-adds per second, times two, of all threads of the pool at once: of each the best of
// some bursts of 0.1 ms by its own CPU time, so that others' work does not lower it.
double probe_flops(ThreadPool& pool);

// The same rate over `seconds` of bursts, by kernel_seconds, from the call to the last thread's
// end: what a kernel of nothing but multiply-adds would reach, others' work on the machine
// included.
double sustained_flops(ThreadPool& pool, double seconds);

}  // namespace tegula
