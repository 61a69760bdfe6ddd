#include "tegula/kernels/cpu/common/grid_tasks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "tegula/base/thread_pool.h"

namespace tegula::kernel {
namespace {

// Each task once, after the one above and the one to its left, in the place of its grid, which no
// unfinished grid shares.
TEST(GridTasks, OrderedOnce) {
  for (const int threads : {1, 2, 5})
    for (const int64_t grids : {0, 1, 3, 11})
      for (const int64_t rows : {1, 7})
        for (const int64_t columns : {int64_t{1}, int64_t{4}, kMostGridColumns}) {
          ThreadPool pool(threads);
          const auto n = static_cast<size_t>(grids * rows * columns);
          std::vector<std::atomic<int>> runs(n);
          std::vector<std::atomic<int64_t>> in_place(static_cast<size_t>(threads));
          for (auto& g : in_place) g = -1;
          std::vector<int32_t> states(static_cast<size_t>(GridTasks::state_ints(grids)), 77);
          std::atomic<int> faults{0};
          GridTasks tasks(states.data(), grids, rows, columns);
          pool.parallel_for(threads, [&](int64_t place, int) {
            tasks.work(place, [&](const GridTasks::Task& t) {
              const auto at = [&](int64_t row, int64_t column) -> std::atomic<int>& {
                return runs[static_cast<size_t>((t.grid * rows + row) * columns + column)];
              };
              if (t.row > 0) faults += at(t.row - 1, t.column) != 1;
              if (t.column > 0) faults += at(t.row, t.column - 1) != 1;
              auto& grid = in_place[static_cast<size_t>(t.place)];
              if (t.row == 0 && t.column == 0) faults += grid.exchange(t.grid) != -1;
              faults += grid != t.grid;
              if (t.row == rows - 1 && t.column == columns - 1) grid = -1;
              ++at(t.row, t.column);
            });
          });
          EXPECT_EQ(faults, 0) << threads << ' ' << grids << ' ' << rows << ' ' << columns;
          for (const auto& r : runs) ASSERT_EQ(r, 1);
        }
}

// The cost of finding a task does not grow with the grids that are done: four times as many take
// about four times as long (sixteen times, where each is looked at again for each). The factor of
// ten leaves room for whoever else is on the machine.
TEST(GridTasks, TimeGrowsWithGridsAlone) {
  const auto seconds = [](int64_t grids) {
    std::vector<int32_t> states(static_cast<size_t>(GridTasks::state_ints(grids)));
    double best = 1e9;
    for (int i = 0; i < 5; ++i) {
      GridTasks tasks(states.data(), grids, 1, 1);
      int64_t n = 0;
      const auto start = std::chrono::steady_clock::now();
      tasks.work(0, [&](const GridTasks::Task&) { ++n; });
      best = std::min(
          best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
      EXPECT_EQ(n, grids);
    }
    return best;
  };
  EXPECT_LT(seconds(32768), 10 * seconds(8192));
}

// Whoever has no grid of his own comes to the last one, too: two of its tasks run at the same time.
TEST(GridTasks, HelpersComeToTheLastGrid) {
  for (const int threads : {2, 3})
    for (const int64_t grids : {1, 2, 3, 7}) {
      ThreadPool pool(threads);
      std::vector<int32_t> states(static_cast<size_t>(GridTasks::state_ints(grids)));
      GridTasks tasks(states.data(), grids, 2, 2);
      std::atomic<bool> has_come{false}, nobody_came{false};
      const auto late = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      pool.parallel_for(threads, [&](int64_t place, int) {
        tasks.work(place, [&](const GridTasks::Task& t) {
          if (t.grid < grids - 1 || t.row == t.column) return;
          if (t.row == 1) has_come = true;
          while (!has_come && !nobody_came) {
            nobody_came = std::chrono::steady_clock::now() > late;
            std::this_thread::yield();
          }
        });
      });
      EXPECT_FALSE(nobody_came) << threads << " threads, " << grids << " grids";
    }
}

}  // namespace
}  // namespace tegula::kernel
