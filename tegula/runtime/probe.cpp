#include "tegula/runtime/probe.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <vector>

#include "tegula/kernels/cpu/isa/fma_burst.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula {

namespace {

using Clock = std::chrono::steady_clock;
volatile float sink;

double seconds_since(Clock::time_point t) {
  return std::chrono::duration<double>(Clock::now() - t).count();
}

}  // namespace

double probe_flops(ThreadPool& pool) {
  std::atomic<int64_t> flops{0};
  const auto start = Clock::now();
  pool.parallel_for(pool.n_threads(), [&](int64_t, int) {
    int64_t n = 0;
    kernel::isa_table().fma_burst({machine_isa() == Isa::kPortable ? 5000 : 100000, &n});
    flops += n;
  });
  return static_cast<double>(flops) / seconds_since(start);
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
