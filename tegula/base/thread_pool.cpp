#include "tegula/base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <system_error>

#include "tegula/base/container.h"
#include "tegula/base/denormals.h"

namespace tegula {

namespace {
thread_local bool in_pool = false;
thread_local int pool_thread = 0;

// Long enough to bridge the gap between two steps of a plan, short enough to starve nobody.
constexpr int kSpins = 2000;

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

ThreadPool::ThreadPool(int n_threads) : n_threads_(n_threads > 0 ? n_threads : usable_cores()) {
  constexpr int kMostThreads = 4096;
  n_threads_ = std::clamp(n_threads_, 1, kMostThreads);
  shares_ = std::make_unique<Share[]>(static_cast<size_t>(n_threads_));
  // Workers read n_threads_ only in a loop, which begins after this.
  try {
    for (int t = 1; t < n_threads_; ++t) threads_.emplace_back([this, t] { worker(t); });
  } catch (const std::system_error&) {  // a limit of the system: so many will do
    n_threads_ = static_cast<int>(threads_.size()) + 1;
  }
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_release);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  for (auto& t : threads_) t.join();
}

void ThreadPool::run(int64_t n, Body body, void* fn) {
  if (n <= 0) return;
  if (!in_pool && n > most_indices_) most_indices_ = n;
  const FlushDenormals flush;
  if (in_pool || n <= 1 || n_threads_ == 1 || busy_) {
    for (int64_t i = 0; i < n; ++i) body(fn, i, in_pool ? pool_thread : 0);
    return;
  }
  busy_ = true;
  body_ = body, fn_ = fn;
  for (int t = 0; t < n_threads_; ++t) {
    shares_[static_cast<size_t>(t)].next.store(n * t / n_threads_, std::memory_order_relaxed);
    shares_[static_cast<size_t>(t)].end = n * (t + 1) / n_threads_;
  }
  pending_.store(kOpen, std::memory_order_release);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  in_pool = true;
  work(0);
  in_pool = false;
  pending_.fetch_and(~kOpen, std::memory_order_acq_rel);
  for (int spin = 0;; ++spin) {
    const uint32_t left = pending_.load(std::memory_order_acquire);
    if (left == 0) break;
    if (spin < kSpins) {
      pause();
    } else {
      pending_.wait(left, std::memory_order_acquire);
    }
  }
  busy_ = false;
}

void ThreadPool::work(int thread) {
  for (int k = 0; k < n_threads_; ++k) {
    Share& s = shares_[static_cast<size_t>((thread + k) % n_threads_)];
    if (s.next.load(std::memory_order_relaxed) >= s.end) continue;
    for (int64_t i; (i = s.next.fetch_add(1, std::memory_order_relaxed)) < s.end;)
      body_(fn_, i, thread);
  }
}

void ThreadPool::worker(int thread) {
  in_pool = true;
  pool_thread = thread;
  const FlushDenormals flush;
  uint32_t seen = 0;
  for (;;) {
    uint32_t now;
    for (int spin = 0; (now = epoch_.load(std::memory_order_acquire)) == seen; ++spin) {
      if (spin < kSpins) {
        pause();
      } else {
        epoch_.wait(seen, std::memory_order_acquire);
      }
    }
    seen = now;
    if (stop_.load(std::memory_order_acquire)) return;
    uint32_t inside = pending_.load(std::memory_order_acquire);
    while ((inside & kOpen) != 0 &&
           !pending_.compare_exchange_weak(inside, inside + 1, std::memory_order_acq_rel)) {
    }
    if ((inside & kOpen) == 0) continue;
    work(thread);
    if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) pending_.notify_one();
  }
}

}  // namespace tegula
