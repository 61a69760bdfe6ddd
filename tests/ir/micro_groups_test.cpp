// The order in which micro-batches are summed, written as text.
#include "tegula/ir/micro_groups.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tegula/base/result.h"

namespace tegula {
namespace {

std::string chain(int64_t first, int64_t n) {
  std::string text = "0";
  for (int64_t m = first; m < first + n; ++m) text = cat("(", text, "+", m, ")");
  return text;
}

std::string tree(int64_t first, int64_t n_groups, int64_t size) {
  if (n_groups == 1) return chain(first, size);
  const int64_t half = n_groups / 2;
  return cat("(", tree(first, half, size), "+", tree(first + half * size, half, size), ")");
}

// Plays the stack for one rank's micro-batches, the first of which has the number `first`.
std::string played(const MicroGroups& g, int64_t first) {
  std::vector<std::string> stack(static_cast<size_t>(g.n_slots()), "0");
  for (int64_t m = 0; m < g.n; ++m) {
    auto top = static_cast<size_t>(g.slot_of(m));
    stack.at(top) = cat("(", stack.at(top), "+", first + m, ")");
    for (int64_t j = 0; j < g.joins_after(m); ++j, --top) {
      stack.at(top - 1) = cat("(", stack.at(top - 1), "+", stack.at(top), ")");
      stack.at(top) = "0";
    }
  }
  for (size_t slot = 1; slot < stack.size(); ++slot) EXPECT_EQ(stack[slot], "0");
  return stack[0];
}

TEST(MicroGroups, AreChainsInATree) {
  for (const auto& [n, groups] :
       {std::pair{1, 1}, {2, 2}, {3, 1}, {4, 4}, {6, 2}, {8, 8}, {12, 4}, {16, 8}, {40, 8}}) {
    const MicroGroups g = MicroGroups::of(n);
    EXPECT_EQ(g.groups, groups);
    EXPECT_EQ(played(g, 0), tree(0, groups, n / groups));
  }
  EXPECT_EQ(played(MicroGroups::chain(4), 0), chain(0, 4));
}

TEST(MicroGroups, SharesOfRanksAreSubtrees) {
  for (const int64_t n : {2, 4, 8, 12, 24})
    for (const int64_t ranks : {2, 4, 8}) {
      const MicroGroups all = MicroGroups::of(n);
      if (all.groups % ranks != 0) continue;
      const MicroGroups own = all.share(ranks);
      std::vector<std::string> sums;
      for (int64_t r = 0; r < ranks; ++r) sums.push_back(played(own, r * own.n));
      for (size_t left = sums.size(); left > 1; left /= 2)  // ranks at distance 1, 2, 4
        for (size_t i = 0; i < left / 2; ++i)
          sums[i] = cat("(", sums[2 * i], "+", sums[2 * i + 1], ")");
      EXPECT_EQ(sums[0], played(all, 0));
    }
}

}  // namespace
}  // namespace tegula
