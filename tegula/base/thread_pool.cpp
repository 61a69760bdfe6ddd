#include "tegula/base/thread_pool.h"

#include <sched.h>

#include <atomic>
#include <cmath>
#include <system_error>
#include <thread>
#include <vector>

#include "tegula/base/algorithm.h"
#include "tegula/base/container.h"
#include "tegula/base/denormals.h"
#include "tegula/base/memory.h"

namespace tegula {

namespace {
thread_local bool in_pool = false;
thread_local int pool_thread = 0;

// Long enough to bridge the gap between two steps of a plan, short enough to starve nobody.
constexpr int kSpins = 2000;
constexpr int kMostThreads = 4096;

// A loop's word: workers inside it, and whether more may enter. The caller never waits for a worker
// that has not woken up: on a busy machine that may take longer than the loop.
constexpr uint32_t kOpen = 1u << 31;

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}
}  // namespace

// Its affinity mask, and of a container's quota of time as many as it would keep busy, rounded up.
int usable_cores() {
  int cores = 0;
  for (int most = 1024; cores == 0 && most <= 1 << 20; most *= 4) {  // as many as the kernel knows
    cpu_set_t* set = CPU_ALLOC(most);
    if (set != nullptr && sched_getaffinity(0, CPU_ALLOC_SIZE(most), set) == 0)
      cores = CPU_COUNT_S(CPU_ALLOC_SIZE(most), set);
    CPU_FREE(set);
  }
  if (cores == 0) cores = static_cast<int>(std::thread::hardware_concurrency());
  if (const double cpus = container_limits().cpus; cpus > 0)
    cores = static_cast<int>(std::min(static_cast<double>(cores), std::ceil(cpus)));
  return std::max(cores, 1);
}

struct ThreadPool::Workers {
  struct alignas(64) Share {  // a thread's own indices
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };

  explicit Workers(int n_threads);
  ~Workers();
  void run(int64_t n, Body body, void* fn);
  void work(int thread);
  void worker(int thread);

  int n_threads;
  std::unique_ptr<Share[]> shares;
  std::vector<std::thread> threads;
  Body body = nullptr;
  void* fn = nullptr;
  std::atomic<uint32_t> epoch{0};
  std::atomic<uint32_t> pending{0};
  std::atomic<bool> stop{false};
};

ThreadPool::Workers::Workers(int n)
    : n_threads(n), shares(std::make_unique<Share[]>(static_cast<size_t>(n))) {
  // Workers read n_threads only in a loop, which begins after this.
  try {
    for (int t = 1; t < n; ++t) threads.emplace_back([this, t] { worker(t); });
  } catch (const std::system_error&) {  // a limit of the system: so many will do
    n_threads = static_cast<int>(threads.size()) + 1;
  }
}

ThreadPool::Workers::~Workers() {
  stop.store(true, std::memory_order_release);
  epoch.fetch_add(1, std::memory_order_release);
  epoch.notify_all();
  for (auto& t : threads) t.join();
}

ThreadPool::ThreadPool(int n_threads)
    : workers_(
          new Workers(std::clamp(n_threads > 0 ? n_threads : usable_cores(), 1, kMostThreads))) {
  n_threads_ = workers_->n_threads;
}

ThreadPool::~ThreadPool() { delete workers_; }

void ThreadPool::run(int64_t n, Body body, void* fn) {
  if (n <= 0) return;
  if (!in_pool && n > most_indices_) most_indices_ = n;
  const FlushDenormals flush;
  if (in_pool || n <= 1 || n_threads_ == 1 || busy_) {
    for (int64_t i = 0; i < n; ++i) body(fn, i, in_pool ? pool_thread : 0);
    return;
  }
  busy_ = true;
  workers_->run(n, body, fn);
  busy_ = false;
}

void ThreadPool::Workers::run(int64_t n, Body loop_body, void* loop_fn) {
  body = loop_body, fn = loop_fn;
  for (int t = 0; t < n_threads; ++t) {
    shares[static_cast<size_t>(t)].next.store(n * t / n_threads, std::memory_order_relaxed);
    shares[static_cast<size_t>(t)].end = n * (t + 1) / n_threads;
  }
  pending.store(kOpen, std::memory_order_release);
  epoch.fetch_add(1, std::memory_order_release);
  epoch.notify_all();
  in_pool = true;
  work(0);
  in_pool = false;
  pending.fetch_and(~kOpen, std::memory_order_acq_rel);
  for (int spin = 0;; ++spin) {
    const uint32_t left = pending.load(std::memory_order_acquire);
    if (left == 0) break;
    if (spin < kSpins) {
      pause();
    } else {
      pending.wait(left, std::memory_order_acquire);
    }
  }
}

void ThreadPool::Workers::work(int thread) {
  for (int k = 0; k < n_threads; ++k) {
    Share& s = shares[static_cast<size_t>((thread + k) % n_threads)];
    if (s.next.load(std::memory_order_relaxed) >= s.end) continue;
    for (int64_t i; (i = s.next.fetch_add(1, std::memory_order_relaxed)) < s.end;)
      body(fn, i, thread);
  }
}

void ThreadPool::Workers::worker(int thread) {
  in_pool = true;
  pool_thread = thread;
  const FlushDenormals flush;
  uint32_t seen = 0;
  for (;;) {
    uint32_t now;
    for (int spin = 0; (now = epoch.load(std::memory_order_acquire)) == seen; ++spin) {
      if (spin < kSpins) {
        pause();
      } else {
        epoch.wait(seen, std::memory_order_acquire);
      }
    }
    seen = now;
    if (stop.load(std::memory_order_acquire)) return;
    uint32_t inside = pending.load(std::memory_order_acquire);
    while ((inside & kOpen) != 0 &&
           !pending.compare_exchange_weak(inside, inside + 1, std::memory_order_acq_rel)) {
    }
    if ((inside & kOpen) == 0) continue;
    work(thread);
    if (pending.fetch_sub(1, std::memory_order_acq_rel) == 1) pending.notify_one();
  }
}

}  // namespace tegula
