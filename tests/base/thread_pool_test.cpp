#include "tegula/base/thread_pool.h"

#include <gtest/gtest.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace tegula {
namespace {

std::vector<float> work(int n_threads, int64_t n) {
  ThreadPool pool(n_threads);
  std::vector<float> out(static_cast<size_t>(n));
  pool.parallel_for(n, [&](int64_t i, int) {
    float x = 1.0f + static_cast<float>(i);
    for (int k = 0; k < 20; ++k) x = std::fma(x, 0.731f, std::sin(x));
    out[static_cast<size_t>(i)] = x;
  });
  return out;
}

TEST(ThreadPool, ResultsDoNotDependOnTheNumberOfThreads) {
  const std::vector<float> want = work(1, 1000);
  for (int n_threads : {2, 3, 8}) EXPECT_EQ(work(n_threads, 1000), want) << n_threads;
}

TEST(ThreadPool, RunsEveryIndexOnceOnAThreadInRange) {
  for (int n_threads : {1, 2, 5}) {
    ThreadPool pool(n_threads);
    ASSERT_EQ(pool.n_threads(), n_threads);
    for (int64_t n : {0, 1, 2, 3, 97}) {
      std::vector<std::atomic<int>> seen(static_cast<size_t>(n));
      std::atomic<bool> in_range{true};
      pool.parallel_for(n, [&](int64_t i, int thread) {
        seen[static_cast<size_t>(i)].fetch_add(1);
        if (thread < 0 || thread >= n_threads) in_range = false;
      });
      for (auto& count : seen) EXPECT_EQ(count.load(), 1);
      EXPECT_TRUE(in_range);
    }
  }
}

// For a loop that is to be shared: the caller alone could do all of it before another thread has
// woken up. Its indices wait here until a worker has come, ten seconds at most.
class Company {
 public:
  void wait(int thread) {
    if (thread > 0) has_come_ = true;
    while (!has_come_ && std::chrono::steady_clock::now() < end_) std::this_thread::yield();
  }
  bool has_come() const { return has_come_; }

 private:
  std::atomic<bool> has_come_{false};
  std::chrono::steady_clock::time_point end_ =
      std::chrono::steady_clock::now() + std::chrono::seconds(10);
};

TEST(ThreadPool, NestedCallsRunInlineOnTheSameThread) {
  ThreadPool pool(3);
  std::atomic<int> inner{0};
  std::atomic<bool> same_thread{true};
  Company company;
  pool.parallel_for(8, [&](int64_t, int outer_thread) {
    company.wait(outer_thread);
    const auto self = std::this_thread::get_id();
    pool.parallel_for(10, [&](int64_t, int thread) {
      inner.fetch_add(1);
      if (std::this_thread::get_id() != self || thread != outer_thread) same_thread = false;
    });
  });
  EXPECT_EQ(inner.load(), 80);
  EXPECT_TRUE(company.has_come());
  EXPECT_TRUE(same_thread);
}

// Per-thread scratch is the point of the thread index: no two threads may hold one at a time.
TEST(ThreadPool, ThreadIndicesAreExclusive) {
  ThreadPool pool(4);
  std::vector<std::atomic<int>> holders(4);
  std::atomic<bool> exclusive{true};
  for (int round = 0; round < 50; ++round)
    pool.parallel_for(64, [&](int64_t, int thread) {
      auto& holder = holders[static_cast<size_t>(thread)];
      if (holder.fetch_add(1) != 0) exclusive = false;
      std::this_thread::yield();
      holder.fetch_sub(1);
    });
  EXPECT_TRUE(exclusive);
}

TEST(ThreadPool, ManyShortLoops) {
  ThreadPool pool(4);
  std::vector<int64_t> slots(16);
  for (int round = 0; round < 3000; ++round)
    pool.parallel_for(16, [&](int64_t i, int) { slots[static_cast<size_t>(i)] += i; });
  EXPECT_EQ(std::accumulate(slots.begin(), slots.end(), int64_t{0}), 3000 * 120);
}

TEST(ThreadPool, SeveralPoolsAtOnce) {
  std::vector<std::thread> callers;
  std::atomic<int64_t> total{0};
  for (int c = 0; c < 3; ++c)
    callers.emplace_back([&] {
      ThreadPool pool(2);
      for (int round = 0; round < 200; ++round)
        pool.parallel_for(10, [&](int64_t i, int) { total.fetch_add(i); });
    });
  for (auto& t : callers) t.join();
  EXPECT_EQ(total.load(), 3 * 200 * 45);
}

// Threads that have nothing to do sleep, after the spins that bridge the gap between two loops.
TEST(ThreadPool, TakesNoTimeWhenIdle) {
  ThreadPool pool(4);
  const auto cpu_seconds = [] {
    timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
  };
  std::atomic<int64_t> total{0};
  pool.parallel_for(100, [&](int64_t i, int) { total.fetch_add(i); });
  EXPECT_EQ(total.load(), 4950);
  const double before = cpu_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LT(cpu_seconds() - before, 0.02);
}

#if defined(__x86_64__)
// Kernels see denormals flushed on every thread; the caller's own mode is untouched.
TEST(ThreadPool, FlushesDenormalsInsideOnly) {
  volatile float tiny = std::numeric_limits<float>::min();
  for (int n_threads : {1, 3}) {
    ThreadPool pool(n_threads);
    std::atomic<int> kept{0};
    Company company;
    if (n_threads == 1) company.wait(1);
    pool.parallel_for(64, [&](int64_t, int thread) {
      company.wait(thread);
      volatile float half = tiny * 0.5f;
      if (half != 0.0f) kept.fetch_add(1);
    });
    EXPECT_EQ(kept.load(), 0);
    EXPECT_TRUE(company.has_come());
    volatile float half = tiny * 0.5f;
    EXPECT_NE(half, 0.0f);
  }
}

// The mode a user chose for a thread is there again afterwards, whatever it was.
TEST(ThreadPool, RestoresTheCallersMode) {
  const unsigned before = _mm_getcsr();
  for (unsigned mode : {before & ~0x8040u, before | 0x8040u, (before & ~0x8040u) | 0x6000u}) {
    _mm_setcsr(mode);
    ThreadPool pool(2);
    pool.parallel_for(3, [](int64_t, int) {});
    pool.parallel_for(1, [](int64_t, int) {});
    EXPECT_EQ(_mm_getcsr() & ~0x3fu, mode & ~0x3fu);  // but for the sticky flags
  }
  _mm_setcsr(before);
}

// Decay into the denormals takes as long as decay that stays above them. Without flushing it takes
// many times as long on most processors.
TEST(ThreadPool, DenormalsAreNotSlow) {
  ThreadPool pool(2);
  const auto seconds = [&](float start) {
    const auto from = std::chrono::steady_clock::now();
    pool.parallel_for(2, [&](int64_t, int) {
      volatile float sink = 0;
      for (int round = 0; round < 200; ++round) {
        float x[8];
        for (float& v : x) v = start;
        for (int k = 0; k < 200; ++k)
          for (float& v : x) v = v * 0.999f + v * 1e-6f;
        for (float v : x) sink = sink + v;
      }
    });
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
  };
  double ratio = HUGE_VAL;  // the least of some: others may have the machine for a while
  for (int i = 0; i < 9; ++i) ratio = std::min(ratio, seconds(1e-39f) / seconds(1.0f));
  EXPECT_LT(ratio, 3);
}
#endif

}  // namespace
}  // namespace tegula
