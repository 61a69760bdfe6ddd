#include "tegula/runtime/probe.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <vector>

#include "tegula/kernels/kernel.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tegula {

namespace {

using Clock = std::chrono::steady_clock;
constexpr int64_t kRounds = 100000;
volatile float sink;

// Twelve independent chains cover the latency of two FMA units; returns FLOPs done. Unrolled, or
// the accumulators would live in memory and the peak would come out at a third.
#if defined(__x86_64__)
__attribute__((target("avx512f"))) int64_t burst_avx512() {
  __m512 acc[12];
  for (auto& a : acc) a = _mm512_set1_ps(1.0f);
  const __m512 x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(0.001f);
  for (int64_t i = 0; i < kRounds; ++i) {
#pragma GCC unroll 12
    for (auto& a : acc) a = _mm512_fmadd_ps(a, x, y);
  }
  float out[16], total = 0;
  for (auto& a : acc) {
    _mm512_storeu_ps(out, a);
    for (float v : out) total += v;
  }
  sink = total;
  return kRounds * 12 * 16 * 2;
}

__attribute__((target("avx2,fma"))) int64_t burst_avx2() {
  __m256 acc[12];
  for (auto& a : acc) a = _mm256_set1_ps(1.0f);
  const __m256 x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(0.001f);
  for (int64_t i = 0; i < kRounds; ++i) {
#pragma GCC unroll 12
    for (auto& a : acc) a = _mm256_fmadd_ps(a, x, y);
  }
  float out[8], total = 0;
  for (auto& a : acc) {
    _mm256_storeu_ps(out, a);
    for (float v : out) total += v;
  }
  sink = total;
  return kRounds * 12 * 8 * 2;
}
#endif

int64_t burst_portable() {
  float acc[16];
  std::fill(acc, acc + 16, 1.0f);
  for (int64_t i = 0; i < kRounds; ++i)
    for (float& a : acc) a = a * 0.999f + 0.001f;
  float total = 0;
  for (float a : acc) total += a;
  sink = total;
  return kRounds * 16 * 2;
}

int64_t burst() {
#if defined(__x86_64__)
  if (machine_isa() >= Isa::kAvx512) return burst_avx512();
  if (machine_isa() >= Isa::kAvx2) return burst_avx2();
#endif
  return burst_portable();
}

double seconds_since(Clock::time_point t) {
  return std::chrono::duration<double>(Clock::now() - t).count();
}

}  // namespace

double probe_flops(ThreadPool& pool) {
  std::atomic<int64_t> flops{0};
  const auto start = Clock::now();
  pool.parallel_for(pool.n_threads(), [&](int64_t, int) { flops += burst(); });
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
