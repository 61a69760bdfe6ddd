// Properties of the layout of buffers in the arena, over random lifetimes.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <functional>

#include "tegula/plan/memory.h"

namespace tegula {
namespace {

int64_t rounded(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

std::vector<Lifetime> lifetimes() {
  const int n = *rc::gen::inRange(0, 60), steps = *rc::gen::inRange(1, 40);
  std::vector<Lifetime> all;
  for (int i = 0; i < n; ++i) {
    const int first = *rc::gen::inRange(0, steps), last = *rc::gen::inRange(first, steps);
    const int64_t bytes =
        *rc::gen::weightedOneOf<int64_t>({{1, rc::gen::just<int64_t>(0)},
                                          {3, rc::gen::inRange<int64_t>(1, 300)},
                                          {3, rc::gen::inRange<int64_t>(1, 1 << 20)}});
    all.push_back({first, last, bytes});
  }
  return all;
}

bool lives_with(const Lifetime& a, const Lifetime& b) {
  return a.first <= b.last && b.first <= a.last;
}

// The largest sum of live bytes, the slow way.
int64_t bound_of(const std::vector<Lifetime>& all) {
  int64_t most = 0;
  for (const Lifetime& at : all) {
    int64_t sum = 0;
    for (const Lifetime& x : all)
      if (x.first <= at.first && at.first <= x.last) sum += rounded(x.bytes);
    most = std::max(most, sum);
  }
  return most;
}

void expect_holds(const std::function<void()>& property) { EXPECT_TRUE(rc::check(property)); }

void assert_apart(const std::vector<Lifetime>& all, const Layout& layout) {
  RC_ASSERT(layout.offsets.size() == all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    const int64_t begin = layout.offsets[i], end = begin + rounded(all[i].bytes);
    RC_ASSERT(begin % kAlignment == 0 && begin >= 0 && end <= layout.bytes);
    for (size_t j = 0; j < i; ++j)
      if (lives_with(all[i], all[j]) && all[i].bytes > 0 && all[j].bytes > 0)
        RC_ASSERT(end <= layout.offsets[j] || layout.offsets[j] + rounded(all[j].bytes) <= begin);
  }
}

TEST(Offsets, LiveBuffersNeverOverlap) {
  expect_holds([] {
    const auto all = lifetimes();
    assert_apart(all, plan_offsets(all));
  });
}

TEST(Offsets, BySizeTakesEachSizesPeak) {
  expect_holds([] {
    auto all = lifetimes();
    for (Lifetime& b : all) b.bytes = b.bytes % 5 * 100;  // of few sizes
    const Layout layout = plan_offsets_by_size(all);
    assert_apart(all, layout);
    int64_t sum = 0;
    for (int64_t bytes = 100; bytes < 500; bytes += 100) {
      std::vector<Lifetime> of_size;
      for (const Lifetime& b : all)
        if (rounded(b.bytes) == rounded(bytes)) of_size.push_back(b);
      sum += bound_of(of_size);
    }
    RC_ASSERT(layout.bytes == sum);
    RC_ASSERT(layout.lower_bound == bound_of(all));
  });
}

TEST(Offsets, TheArenaLiesBetweenItsBounds) {
  expect_holds([] {
    const auto all = lifetimes();
    const Layout layout = plan_offsets(all);
    int64_t sum = 0;
    for (const Lifetime& x : all) sum += rounded(x.bytes);
    RC_ASSERT(layout.lower_bound == bound_of(all));
    RC_ASSERT(layout.bytes >= layout.lower_bound && layout.bytes <= sum);
  });
}

// Lifetimes that nest or follow each other, like the calls of a program, leave no gap.
TEST(Offsets, AStackOfLifetimesReachesTheBound) {
  expect_holds([] {
    std::vector<Lifetime> all;
    const int depth = *rc::gen::inRange(1, 12);
    for (int i = 0; i < depth; ++i)
      all.push_back({i, 2 * depth - i, *rc::gen::inRange<int64_t>(1, 5000)});
    const Layout layout = plan_offsets(all);
    RC_ASSERT(layout.bytes == layout.lower_bound);
  });
}

}  // namespace
}  // namespace tegula
