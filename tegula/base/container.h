// The share of the machine that this process may use, where a container, a batch system or systemd
// gives it one (a control group). Only the share counts for how many threads it starts
// (usable_cores(), thread_pool.h) and how much memory it takes.
#pragma once

#include <cstdint>
#include <string>

namespace tegula {

struct ContainerLimits {
  double cpus = 0;           // processors' time a second of wall time; 0: no limit
  int64_t memory_bytes = 0;  // 0: no limit
};

// The least limits of the process's control group and of all groups above it that can be seen, by
// /proc/self/cgroup and /proc/self/mountinfo, versions 1 and 2. `root` stands before every path:
// tests have their own /proc and /sys there.
ContainerLimits container_limits(const std::string& root);
// This process's, read once.
const ContainerLimits& container_limits();

// Bytes of the machine, or what the container leaves of it.
int64_t usable_memory();

}  // namespace tegula
