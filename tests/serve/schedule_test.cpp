// The schedule of a batch, by itself: over random texts, limits and caches no page is lost or owned
// twice, every text ends with all its tokens in order, and nobody overtakes.
#include "tegula/serve/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace tegula {
namespace {

// A text as its owner sees it: how many tokens it will read, then draw.
struct Plan {
  int64_t n_prompt = 1, n_new = 1;
  int64_t slides_at = INT64_MAX;  // tokens in the cache at which it begins anew, with half of them
};

class Simulation {
 public:
  Simulation(std::vector<Plan> plans, const ScheduleLimits& limits, PagePool pages)
      : plans_(std::move(plans)), limits_(limits), now_{std::move(pages), {}} {
    for (size_t i = 0; i < plans_.size(); ++i) {
      const Plan& p = plans_[i];
      const int64_t most = std::min(p.n_prompt + p.n_new - 1, p.slides_at);
      waiting_.push_back({static_cast<int64_t>(i), p.n_prompt, most});
    }
  }

  // All steps to the end.
  void run() {
    for (int64_t n = 0;; ++n) {
      ASSERT_LT(n, 100000) << "it never ends";
      const size_t shown = std::min<size_t>(waiting_.size(), 1 + gen_() % 5);
      auto step = next_step(now_, std::span(waiting_).first(shown), limits_);
      ASSERT_TRUE(step.ok()) << step.error().to_string();
      check_pure(*step, shown);
      for (int64_t i = 0; i < step->n_admitted; ++i) came_in_.push_back(waiting_[size_t(i)].id);
      waiting_.erase(waiting_.begin(), waiting_.begin() + step->n_admitted);
      now_ = std::move(step->after);
      if (step->pieces.empty()) break;
      check_step(*step);
      check_pages();
      if (::testing::Test::HasFatalFailure()) return;
      for (const auto& p : step->pieces) follow(p, step->reads);
      check_pages();
    }
    EXPECT_TRUE(waiting_.empty());
    EXPECT_TRUE(now_.texts.empty());
    EXPECT_EQ(now_.pages.n_free(), now_.pages.n_pages());
    EXPECT_TRUE(std::is_sorted(came_in_.begin(), came_in_.end()));
    for (size_t i = 0; i < plans_.size(); ++i)
      EXPECT_EQ(drawn_[static_cast<int64_t>(i)], plans_[i].n_new) << "text " << i;
  }
  int64_t n_decoded() const { return n_decoded_; }

 private:
  // The same again from the same.
  void check_pure(const ScheduledStep& step, size_t shown) const {
    const auto again = next_step(now_, std::span(waiting_).first(shown), limits_);
    ASSERT_TRUE(again.ok());
    ASSERT_EQ(again->pieces.size(), step.pieces.size());
    for (size_t i = 0; i < step.pieces.size(); ++i) {
      EXPECT_EQ(again->pieces[i].id, step.pieces[i].id);
      EXPECT_EQ(again->pieces[i].n_tokens, step.pieces[i].n_tokens);
    }
    for (size_t i = 0; i < step.after.texts.size(); ++i)
      EXPECT_EQ(again->after.texts[i].cached.pages, step.after.texts[i].cached.pages);
  }
  void check_step(const ScheduledStep& step) {
    int64_t n_tokens = 0;
    std::vector<int64_t> ids;
    for (const auto& p : step.pieces) {
      n_tokens += p.n_tokens, ids.push_back(p.id);
      EXPECT_EQ(p.first, cached_[p.id]) << "text " << p.id;  // nothing left out, nothing twice
      EXPECT_TRUE(step.reads || p.n_tokens == 1);
      cached_[p.id] += p.n_tokens;
      EXPECT_LE(cached_[p.id], now_.pages.page_size() *
                                   static_cast<int64_t>(now_.find(p.id)->cached.pages.size()));
    }
    EXPECT_LE(n_tokens, step.reads ? limits_.chunk : limits_.batch);
    EXPECT_LE(static_cast<int64_t>(now_.texts.size()), limits_.batch);
    if (step.reads && limits_.reads_alone) EXPECT_EQ(step.pieces.size(), 1u);
    if (!step.reads) {
      EXPECT_EQ(step.pieces.size(), now_.texts.size());
      ++n_decoded_;
    }
    std::sort(ids.begin(), ids.end());
    EXPECT_EQ(std::adjacent_find(ids.begin(), ids.end()), ids.end());
  }
  void check_pages() {
    std::vector<int> owners(static_cast<size_t>(now_.pages.n_pages()));
    for (const ScheduledText& t : now_.texts)
      for (const int32_t page : t.cached.pages) ++owners.at(static_cast<size_t>(page));
    // Who takes all that is free finds the rest, each once.
    PagePool free = now_.pages;
    CachedText all;
    ASSERT_TRUE(free.grow(all, free.n_free() * free.page_size()).ok());
    for (const int32_t page : all.pages) ++owners.at(static_cast<size_t>(page));
    for (const int n : owners) ASSERT_EQ(n, 1);
  }
  // The move of the text's owner after its piece.
  void follow(const ScheduledStep::Piece& p, bool reads) {
    const Plan& plan = plans_[static_cast<size_t>(p.id)];
    if (!p.is_last) {
      EXPECT_TRUE(reads);
      return;
    }
    if (++drawn_[p.id] == plan.n_new) {
      EXPECT_TRUE(now_.end(p.id));
      EXPECT_FALSE(now_.end(p.id));
    } else if (cached_[p.id] >= plan.slides_at) {
      cached_[p.id] = 0;
      EXPECT_TRUE(now_.read_again(p.id, std::max<int64_t>(1, plan.slides_at / 2)));
    }
  }

  std::vector<Plan> plans_;
  ScheduleLimits limits_;
  BatchSchedule now_;
  std::vector<ScheduledText> waiting_;
  std::vector<int64_t> came_in_;
  std::map<int64_t, int64_t> cached_, drawn_;
  int64_t n_decoded_ = 0;
  std::mt19937 gen_{7};
};

TEST(Schedule, LosesNoPageAndEndsEveryText) {
  std::mt19937 gen(1);
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(gen() % static_cast<uint64_t>(n));
  };
  for (int round = 0; round < 400; ++round) {
    SCOPED_TRACE(cat("round ", round));
    const int64_t context = 8 + below(60), page = 1 + below(9);
    std::vector<Plan> plans;
    for (int64_t i = below(12); i >= 0; --i)
      plans.push_back({1 + below(context), 1 + below(2 * context), context});
    // Pages for one text at least; or many more than there are texts.
    const int64_t n_pages = ((context + page - 1) / page) * (1 + below(6)) + below(3);
    Simulation s(plans, {1 + below(6), 1 + below(context + 3), below(3) == 0}, {n_pages, page});
    s.run();
    if (HasFatalFailure()) return;
  }
}

// Texts that are all there at once decode together: as many steps as the longest one needs.
TEST(Schedule, DecodesTogether) {
  for (const int64_t chunk : {1, 7, 100}) {
    Simulation s({{5, 10}, {40, 3}, {1, 7}}, {3, chunk}, {9, 16});
    s.run();
    EXPECT_EQ(s.n_decoded(), 9);
  }
}

TEST(Schedule, WaitsForPagesRatherThanRunOut) {
  const BatchSchedule empty{{4, 16}, {}};
  const std::vector<ScheduledText> two = {{0, 10, 40}, {1, 10, 33}};
  auto step = next_step(empty, two, {2, 64});
  ASSERT_TRUE(step.ok());
  EXPECT_EQ(step->n_admitted, 1);  // 3 pages, then 3 more
  EXPECT_TRUE(step->after.end(0));
  step = next_step(step->after, std::span(two).last(1), {2, 64});
  ASSERT_TRUE(step.ok());
  EXPECT_EQ(step->n_admitted, 1);
}

TEST(Schedule, SaysWhatCannotBe) {
  const BatchSchedule empty{{4, 16}, {}};
  const auto error = [&](const ScheduledText& t, const ScheduleLimits& limits) {
    const auto step = next_step(empty, {&t, 1}, limits);
    EXPECT_FALSE(step.ok());
    return step.ok() ? "" : step.error().message;
  };
  EXPECT_NE(error({0, 10, 65}, {1, 8}).find("needs 5 pages of 16 tokens, and of 4 4 are free"),
            std::string::npos);
  EXPECT_NE(error({0, 0, 5}, {1, 8}).find("0 tokens to read"), std::string::npos);
  EXPECT_NE(error({0, 6, 5}, {1, 8}).find("may have 5 in all"), std::string::npos);
  EXPECT_NE(error({0, 1, 5}, {0, 8}).find("a batch of 0"), std::string::npos);
}

}  // namespace
}  // namespace tegula
