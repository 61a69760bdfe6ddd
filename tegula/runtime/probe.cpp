#include "tegula/runtime/probe.h"

#include <unistd.h>

#include <atomic>
#include <ctime>
#include <new>
#include <numeric>
#include <vector>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "tegula/base/algorithm.h"
#include "tegula/base/clock.h"
#include "tegula/base/memory.h"
#include "tegula/base/round.h"
#include "tegula/io/file.h"
#include "tegula/kernels/cpu/isa/fma_burst.h"
#include "tegula/kernels/cpu/isa/read_burst.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula {

namespace {

constexpr double kPatience_s = 1e-3;  // that a thread waits for the others to wake
std::atomic<float> sink;  // threads write it only so that what they read is not left out

// About 0.1 ms of multiply-adds of this machine's instruction set.
void burst(int64_t* flops) {
  kernel::isa_table().fma_burst({machine_isa() == Isa::kPortable ? 1000 : 30000, flops});
}

}  // namespace

double kernel_seconds(const ThreadPool& pool) {
  return clock_seconds(pool.n_threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC);
}

double probe_flops(ThreadPool& pool) {
  constexpr int kBursts = 8;
  const int n = pool.n_threads();
  std::atomic<int> arrived{0};
  std::vector<double> best(static_cast<size_t>(n));
  pool.parallel_for(n, [&](int64_t i, int) {
    // All together, as in a kernel: a thread that slept takes as long to wake as a burst lasts.
    ++arrived;
    for (const Stopwatch watch; arrived < n && watch.seconds() < kPatience_s;) {
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

namespace {

// Memory that the threads of a pool read, each its own part, all at the same time.
class ReadProbe {
 public:
  // Each thread touches its part first, so that it lies where the thread sits.
  ReadProbe(ThreadPool& pool, int64_t bytes_each)
      : pool_(pool),
        n_(std::min(pool.n_threads(), usable_cores())),
        // From a cache line's start on: a vector that lies across two takes two loads.
        bytes_each_(round_up(bytes_each, kLine)),
        // Throws where there is none, as other memory does.
        memory_(static_cast<float*>(
            ::operator new (static_cast<size_t>(bytes_each_* n_), std::align_val_t{kLine}))) {
    pool_.parallel_for(n_, [&](int64_t i, int) { std::fill_n(part(i), bytes_each_ / 4, 1.0F); });
  }

  int64_t bytes_each() const { return bytes_each_; }
  int n_readers() const { return n_; }

  // The rate of all threads, reading the first `bytes` of their parts, again and again for long
  // enough, or once, with no cache that has any of it.
  double bytes_per_s(int64_t bytes, bool is_cached) {
    constexpr int64_t kReadBytes = 4 << 20;
    const int64_t passes = is_cached ? std::max<int64_t>(1, kReadBytes / bytes) : 1;
    std::atomic<int> arrived{0};
    std::vector<double> begin(static_cast<size_t>(n_)), end(begin);
    pool_.parallel_for(n_, [&](int64_t i, int) {
      if (!is_cached) flush(part(i), bytes);
      ++arrived;
      for (const Stopwatch watch; arrived < n_ && watch.seconds() < kPatience_s;) {
      }
      float sum = 0;
      begin[static_cast<size_t>(i)] = seconds();
      for (int64_t pass = 0; pass < passes; ++pass)
        kernel::isa_table().read_burst({part(i), bytes / 4, &sum});
      end[static_cast<size_t>(i)] = seconds();
      sink = sum;
    });
    const double took =
        *std::max_element(end.begin(), end.end()) - *std::min_element(begin.begin(), begin.end());
    return static_cast<double>(bytes * passes * n_) / took;
  }

 private:
  static constexpr int64_t kLine = 64;
  struct Free {
    void operator()(float* p) const { ::operator delete (p, std::align_val_t{kLine}); }
  };
  double seconds() const {
    return n_ == 1 ? clock_seconds(CLOCK_THREAD_CPUTIME_ID) : clock_seconds(CLOCK_MONOTONIC);
  }
  float* part(int64_t i) const { return memory_.get() + i * (bytes_each_ / 4); }
  // Out of every cache, so that little memory shows what memory does.
  static void flush(const float* data, int64_t bytes) {
#if defined(__x86_64__)
    for (int64_t at = 0; at < bytes; at += kLine)
      _mm_clflush(reinterpret_cast<const char*>(data) + at);
    _mm_mfence();
#endif
  }

  ThreadPool& pool_;
  int n_;
  int64_t bytes_each_;
  std::unique_ptr<float, Free> memory_;
};

}  // namespace

CoreSpeed probe_core(ThreadPool& pool) {
  CoreSpeed speed;
  speed.caches = Target::one_thread().caches;
  const int n = pool.n_threads();
  for (int trial = 0; trial < 5; ++trial)
    speed.flops_per_s = std::max(speed.flops_per_s, probe_flops(pool) / n);
  // Each thread has so much as half of the largest cache that is its own.
  const int64_t each =
      *std::max_element(std::begin(speed.caches.bytes), std::end(speed.caches.bytes)) / 2;
  ReadProbe memory(pool, each);
  for (int level = 0; level <= CacheSizes::kLevels; ++level) {
    const bool is_memory = level == CacheSizes::kLevels;
    const int64_t bytes = is_memory ? each : speed.caches.bytes[level] / 2;
    for (int trial = 0; trial < 4; ++trial)  // the first one fills the cache
      speed.bytes_per_s[level] = std::max(
          speed.bytes_per_s[level], memory.bytes_per_s(bytes, !is_memory) / memory.n_readers());
  }
  return speed;
}

MachineSpeed probe_machine(int threads) {
  // Threads beyond the cores add no speed.
  ThreadPool pool(threads > 0 ? std::min(threads, usable_cores()) : 0);
  MachineSpeed speed;
  for (int trial = 0; trial < 5; ++trial)
    speed.flops_per_s = std::max(speed.flops_per_s, probe_flops(pool));
  constexpr int64_t kBytes = 64 << 20;
  ReadProbe memory(pool, std::max<int64_t>(kBytes / pool.n_threads(), 64 << 10));
  for (int trial = 0; trial < 4; ++trial)
    speed.bytes_per_s = std::max(speed.bytes_per_s, memory.bytes_per_s(memory.bytes_each(), false));
  return speed;
}

}  // namespace tegula
