#include "tegula/runtime/probe.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <memory>
#include <numeric>
#include <vector>

#include "tegula/base/algorithm.h"
#include "tegula/io/file.h"
#include "tegula/kernels/cpu/isa/fma_burst.h"
#include "tegula/kernels/cpu/isa/read_burst.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula {

namespace {

using Clock = std::chrono::steady_clock;
std::atomic<float> sink;  // threads write it only so that what they read is not left out

double seconds_since(Clock::time_point t) {
  return std::chrono::duration<double>(Clock::now() - t).count();
}

// About 0.1 ms of multiply-adds of this machine's instruction set.
void burst(int64_t* flops) {
  kernel::isa_table().fma_burst({machine_isa() == Isa::kPortable ? 1000 : 30000, flops});
}

double clock_seconds(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

}  // namespace

double kernel_seconds(const ThreadPool& pool) {
  return clock_seconds(pool.n_threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC);
}

double probe_flops(ThreadPool& pool) {
  constexpr int kBursts = 8;
  constexpr double kPatience = 1e-3;
  const int n = pool.n_threads();
  std::atomic<int> arrived{0};
  std::vector<double> best(static_cast<size_t>(n));
  pool.parallel_for(n, [&](int64_t i, int) {
    // All together, as in a kernel: a thread that slept takes as long to wake as a burst lasts.
    ++arrived;
    for (const auto begin = Clock::now(); arrived < n && seconds_since(begin) < kPatience;) {
    }
    for (int k = 0; k < kBursts; ++k) {
      int64_t flops = 0;
      const double begin = clock_seconds(CLOCK_THREAD_CPUTIME_ID);
      burst(&flops);
      const double seconds = clock_seconds(CLOCK_THREAD_CPUTIME_ID) - begin;
      double& rate = best[static_cast<size_t>(i)];
      rate = std::max(rate, static_cast<double>(flops) / seconds);
    }
  });
  return std::accumulate(best.begin(), best.end(), 0.0);
}

double sustained_flops(ThreadPool& pool, double seconds) {
  std::atomic<int64_t> all{0};
  const double begin = kernel_seconds(pool);
  pool.parallel_for(pool.n_threads(), [&](int64_t, int) {
    int64_t flops = 0;
    while (kernel_seconds(pool) - begin < seconds) burst(&flops);
    all += flops;
  });
  return static_cast<double>(all) / (kernel_seconds(pool) - begin);
}

std::string processor_name() {
  if (const auto text = read_file("/proc/cpuinfo"); text.ok())
    if (const size_t at = text->find("model name"); at != std::string::npos)
      if (const size_t colon = text->find(": ", at), end = text->find('\n', at); colon < end)
        return text->substr(colon + 2, end - colon - 2);
  return "unknown processor";
}

std::string machine_name() {
  const CacheSizes& caches = Target::one_thread().caches;
  return cat(processor_name(), ", ", isa_name(machine_isa()), ", ", ThreadPool(0).n_threads(),
             " cores, caches ", caches.bytes[0], " ", caches.bytes[1], " ", caches.bytes[2]);
}

CoreSpeed probe_core(ThreadPool& pool) {
  CoreSpeed speed;
  speed.caches = Target::one_thread().caches;
  const int n = pool.n_threads();
  for (int trial = 0; trial < 5; ++trial)
    speed.flops_per_s = std::max(speed.flops_per_s, probe_flops(pool) / n);
  constexpr int64_t kMemoryBytes = 32 << 20, kReadBytes = 4 << 20;
  // From a cache line's start on: a vector that lies across two takes two loads.
  std::vector<float> memory(static_cast<size_t>(kMemoryBytes / 4 * n + 16), 1.0f);
  void* start_of_line = memory.data();
  size_t room = memory.size() * sizeof(float);
  const auto* data = static_cast<const float*>(std::align(
      64, static_cast<size_t>(kMemoryBytes) * static_cast<size_t>(n), start_of_line, room));
  for (int level = 0; level <= CacheSizes::kLevels; ++level) {
    const bool is_memory = level == CacheSizes::kLevels;
    const int64_t bytes =
        is_memory ? kMemoryBytes : std::min(kMemoryBytes, speed.caches.bytes[level] / 2);
    const int64_t passes = std::max<int64_t>(1, kReadBytes / bytes);
    for (int trial = 0; trial < 4; ++trial) {  // the first one fills the cache
      const double start = kernel_seconds(pool);
      pool.parallel_for(n, [&](int64_t i, int) {
        float sum = 0;
        for (int64_t pass = 0; pass < passes; ++pass)
          kernel::isa_table().read_burst({data + i * (kMemoryBytes / 4), bytes / 4, &sum});
        sink = sum;
      });
      speed.bytes_per_s[level] =
          std::max(speed.bytes_per_s[level],
                   static_cast<double>(bytes * passes) / (kernel_seconds(pool) - start));
    }
  }
  return speed;
}

MachineSpeed probe_machine(int threads) {
  ThreadPool pool(threads);
  MachineSpeed speed;
  const int n = pool.n_threads();
  for (int trial = 0; trial < 5; ++trial)
    speed.flops_per_s = std::max(speed.flops_per_s, probe_flops(pool));
  constexpr int64_t kBytesEach = 64 << 20;
  const std::vector<uint64_t> memory(static_cast<size_t>(kBytesEach / 8 * n), 1);
  for (int trial = 0; trial < 3; ++trial) {
    const auto start = Clock::now();
    pool.parallel_for(n, [&](int64_t i, int) {
      const uint64_t* p = memory.data() + i * (kBytesEach / 8);
      uint64_t a = 0, b = 0, c = 0, d = 0;
      for (int64_t k = 0; k < kBytesEach / 8; k += 4)
        a += p[k], b += p[k + 1], c += p[k + 2], d += p[k + 3];
      sink = static_cast<float>(a + b + c + d);
    });
    speed.bytes_per_s =
        std::max(speed.bytes_per_s, static_cast<double>(kBytesEach * n) / seconds_since(start));
  }
  return speed;
}

}  // namespace tegula
