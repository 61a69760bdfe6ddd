// Properties of the layout of buffers in the arena, over random lifetimes.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <functional>
#include <random>

#include "tegula/plan/memory.h"
#include "tegula/plan/placed_by_time.h"

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

struct Lying {
  int64_t begin, end;
  Lifetime b;
};

// Puts b into the smallest gap that fits, the lowest of these, by a walk over all.
int64_t place(std::vector<Lying>& placed, const Lifetime& b, int64_t need) {
  int64_t top = 0, at = -1, smallest = INT64_MAX;
  for (const Lying& p : placed) {
    if (!lives_with(p.b, b)) continue;
    const int64_t gap = p.begin - top;
    if (gap >= need && gap < smallest) smallest = gap, at = top;
    top = std::max(top, p.end);
  }
  if (at < 0) at = top;
  const auto behind =
      std::find_if(placed.begin(), placed.end(), [&](const Lying& p) { return p.begin > at; });
  placed.insert(behind, {at, at + need, b});
  return at;
}

struct Many {
  int steps, sizes;
  bool is_sorted;  // the largest first
};

// Lives that nest, as those of activations do, lives until the end, as those of gradients, short
// ones, those that begin and end with blocks of 32 steps, and any.
std::vector<Lifetime> many_lifetimes(const Many& many, int n) {
  std::mt19937 random(1);
  const auto below = [&](int m) { return static_cast<int>(random() % static_cast<uint32_t>(m)); };
  const int steps = many.steps;
  std::vector<Lifetime> all;
  for (int i = 0; i < n; ++i) {
    int first = below(4) ? static_cast<int>(int64_t{i} * steps / n / 2) : below(steps);
    const int kind = below(6);
    if (kind == 0) first = first / 32 * 32;
    const int lasts[] = {first + 31,        first,     first + below(9),
                         steps - 1 - first, steps - 1, first + below(steps)};
    const int last = std::clamp(lasts[kind], first, steps - 1);
    all.push_back({first, last, int64_t{1 + below(many.sizes)} * kAlignment});
  }
  if (many.is_sorted)
    std::stable_sort(all.begin(), all.end(),
                     [](const Lifetime& a, const Lifetime& b) { return a.bytes > b.bytes; });
  return all;
}

TEST(Offsets, GapsFoundByTimeAreThoseOfAWalkOverAll) {
  for (const Many many : {Many{96, 4, true},
                          {40, 300, false},
                          {700, 1, true},
                          {700, 20, false},
                          {700, 2000, true},
                          {30000, 20, true},
                          {30000, 20, false}}) {
    PlacedByTime by_time(many.steps);
    std::vector<Lying> placed;
    const std::vector<Lifetime> all = many_lifetimes(many, 3000);
    for (size_t i = 0; i < all.size(); ++i)
      ASSERT_EQ(by_time.place(all[i], all[i].bytes), place(placed, all[i], all[i].bytes))
          << "buffer " << i << " in " << many.steps << " steps";
  }
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
