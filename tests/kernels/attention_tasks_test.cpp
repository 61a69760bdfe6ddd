#include "tegula/kernels/cpu/common/attention_tasks.h"

#include <gtest/gtest.h>

#include <tuple>
#include <vector>

#include "tegula/base/round.h"

namespace tegula::kernel {
namespace {

struct Case {
  RowTasks::Shape shape;
  int64_t n, n_next;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const int64_t threads : {1, 2, 3, 16})
    for (const int64_t rows : {1, 84, 85, 1000})
      for (const int64_t n : {1, 3, 8})
        for (const bool causal : {false, true})
          for (const int64_t n_next : {0, 2})
            all.push_back({{rows, rows + 7, 84, causal, threads}, n, n_next});
  return all;
}

TEST(RowTasks, CoverEveryRowOfEveryPairOnce) {
  constexpr int64_t kFirst = 5;
  for (const Case& c : cases()) {
    const RowTasks tasks(c.shape, kFirst, c.n, c.n_next);
    std::vector<int> seen(static_cast<size_t>(c.n * c.shape.rows));
    for (int64_t i = 0; i < tasks.count(); ++i) {
      const RowBlock b = tasks.block(i);
      EXPECT_EQ(b.pair, kFirst + i / tasks.of_pair());
      ASSERT_GE(b.r0, 0);
      ASSERT_LE(b.r0 + b.rows, c.shape.rows);
      for (int64_t r = b.r0; r < b.r0 + b.rows; ++r)
        ++seen[static_cast<size_t>((b.pair - kFirst) * c.shape.rows + r)];
    }
    for (const int times : seen) ASSERT_EQ(times, 1);
  }
}

TEST(RowTasks, CausalPairsBeginWithTheirLastRows) {
  const RowTasks tasks({840, 840, 84, true, 1}, 0, 2, 0);
  for (int64_t i = 0; i < 10; ++i) EXPECT_EQ(tasks.block(i).r0, 84 * (9 - i));
  // Two threads share one pair: each has late rows and early ones.
  const RowTasks shared({840, 840, 84, true, 2}, 0, 1, 0);
  EXPECT_EQ(shared.block(0).r0, 84 * 9);
  EXPECT_EQ(shared.block(5).r0, 84 * 8);
}

// The memory that a thread fetches of a pair lies within it, goes upwards without a gap where all
// may be fetched, and is at most what it may be.
TEST(RowTasks, FetchedKeysAreTheThreadsPartOfTheNextPair) {
  for (const Case& c : cases())
    for (const int64_t most : {int64_t{1} << 40, int64_t{100}}) {
      const RowTasks tasks(c.shape, 0, c.n, c.n_next);
      for (int64_t thread = 0; thread < c.shape.n_threads; ++thread) {
        const int64_t begin = tasks.count() * thread / c.shape.n_threads,
                      end = tasks.count() * (thread + 1) / c.shape.n_threads;
        int64_t pair = -1, at = 0, fetched = 0;
        for (int64_t i = begin; i < end; ++i) {
          const RowTasks::Next next = tasks.after(i, most);
          if (i + 1 < end) {
            ASSERT_TRUE(next.is_there);
            const RowBlock b = tasks.block(i + 1);
            EXPECT_EQ(std::tuple(next.block.pair, next.block.r0, next.block.rows),
                      std::tuple(b.pair, b.r0, b.rows));
          }
          if (next.keys == 0) continue;
          ASSERT_GE(next.first_key, 0);
          ASSERT_LE(next.first_key + next.keys, c.shape.keys);
          EXPECT_GT(next.key_pair, i / tasks.of_pair());
          EXPECT_LT(next.key_pair, c.n + c.n_next);
          if (next.key_pair != pair) pair = next.key_pair, at = next.first_key, fetched = 0;
          EXPECT_GE(next.first_key, at);
          if (most > c.shape.keys) {
            EXPECT_EQ(next.first_key, at);
          }
          at = next.first_key + next.keys, fetched += next.keys;
          EXPECT_LE(fetched, most);
        }
      }
    }
}

}  // namespace
}  // namespace tegula::kernel
