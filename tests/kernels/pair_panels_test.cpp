#include "tegula/kernels/cpu/common/pair_panels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "tegula/base/thread_pool.h"

namespace tegula::kernel {
namespace {

struct Case {
  int threads;
  int64_t pairs, blocks, tasks;
};

// Runs all tasks of a loop; returns how many found another pair's panels, or a slot out of range.
// Panels are plain memory: the thread sanitizer sees who does not wait.
int faults_of(const Case& c, std::vector<std::atomic<int>>& packed) {
  const int64_t slots = std::min(c.pairs, PairPanels::most_slots(c.threads));
  ThreadPool pool(c.threads);
  std::vector<int32_t> states(static_cast<size_t>(PairPanels::state_ints(c.pairs, c.threads)), 77);
  std::vector<int64_t> panels(static_cast<size_t>(slots * c.blocks), -1);
  const auto panel = [&](int64_t slot, int64_t block) -> int64_t& {
    return panels.at(static_cast<size_t>(slot * c.blocks + block));
  };
  const PairPanels tasks(states.data(), c.pairs, c.blocks, slots, c.threads);
  std::atomic<int> faults{0};
  pool.parallel_for(c.pairs * c.tasks, [&](int64_t i, int thread) {
    const int64_t pair = i / c.tasks;
    const int64_t slot = tasks.enter(pair, thread, [&](int64_t block, int64_t at) {
      if (block % 2 == 0) std::this_thread::yield();
      panel(at, block) = pair;
      ++packed[static_cast<size_t>(pair * c.blocks + block)];
    });
    faults += !tasks.has_begun(pair) || slot < 0 || slot >= slots;
    for (int turn = 0; turn < 2; ++turn) {
      for (int64_t b = 0; b < c.blocks; ++b) faults += panel(slot, b) != pair;
      if (i % 3 == 0) std::this_thread::yield();
    }
    tasks.leave(pair, c.tasks);
  });
  return faults;
}

// Every block is packed once, and lies there until the last task of its pair is done.
TEST(PairPanels, PackedOnceForAllTasks) {
  for (const int threads : {1, 2, 3, 7})
    for (const int64_t pairs : {1, 2, 5, 40})
      for (const int64_t blocks : {1, 9})
        for (const int64_t tasks : {1, 2, 13}) {
          const Case c{threads, pairs, blocks, tasks};
          std::vector<std::atomic<int>> packed(static_cast<size_t>(pairs * blocks));
          EXPECT_EQ(faults_of(c, packed), 0)
              << threads << ' ' << pairs << ' ' << blocks << ' ' << tasks;
          for (const auto& p : packed) ASSERT_EQ(p, 1);
        }
}

// A loop's threads, one step of one of them at a time: parts of ThreadPool's, taken in order, its
// own first. Pairs that hold a slot are never more than the bound says.
TEST(PairPanels, SlotsAreEnoughHoweverThreadsTakeTurns) {
  std::mt19937 rng(1);
  for (int run = 0; run < 400; ++run) {
    const int threads = 1 + static_cast<int>(rng() % 6);
    const int64_t pairs = 1 + rng() % 30, tasks = 1 + rng() % 7, n = pairs * tasks;
    const int64_t slots = std::min(pairs, PairPanels::most_slots(threads));
    std::vector<int32_t> states(static_cast<size_t>(PairPanels::state_ints(pairs, threads)));
    const PairPanels panels(states.data(), pairs, 1, slots, threads);
    const auto begin = [&](int64_t thread) { return n * thread / threads; };
    std::vector<int64_t> taken(static_cast<size_t>(threads)), task(taken.size(), -1);
    std::vector<int64_t> done(static_cast<size_t>(pairs));
    std::set<int64_t> held;
    const auto take = [&](int thread) {
      for (int k = 0; k < threads; ++k) {
        const int part = (thread + k) % threads;
        int64_t& next = taken[static_cast<size_t>(part)];
        if (begin(part) + next < begin(part + 1)) return begin(part) + next++;
      }
      return int64_t{-1};
    };
    for (int64_t steps = 0; steps < 2 * n;) {
      // Some threads come late, or are slow.
      const int thread = static_cast<int>(std::min(rng() % threads, rng() % threads));
      int64_t& own = task[static_cast<size_t>(thread)];
      if (own >= 0) {
        const int64_t pair = own / tasks;
        panels.leave(pair, tasks);
        if (++done[static_cast<size_t>(pair)] == tasks) held.erase(pair);
        own = -1;
      } else if ((own = take(thread)) >= 0) {
        held.insert(own / tasks);
        ASSERT_LE(static_cast<int64_t>(held.size()), slots);
        panels.enter(own / tasks, thread, [](int64_t, int64_t) {});
      } else {
        continue;
      }
      ++steps;
    }
    EXPECT_TRUE(held.empty());
  }
}

}  // namespace
}  // namespace tegula::kernel
