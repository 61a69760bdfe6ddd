// The simulator against one that relaxes all times until nothing moves, on random stages, links and
// schedules; and by hand where the numbers can be counted.
#include "tegula/plan/simulate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "tests/plan/schedules.h"

namespace tegula::testing {
namespace {

TEST(Simulate, AMessageTakesItsLinkAndItsLatency) {
  // Two stages, two micro-batches, forward: 4 s each; 6 bytes at 2 bytes/s and 1 s of latency.
  const Schedule s = made("forward_only", {2, 2, 2, 1});
  const std::vector<StagePrice> stages(2, {.forward_s = 4, .output_bytes = 6});
  const StageChain chain = chain_of(s, stages);
  const auto out = [&](const Links& links) {
    auto r = simulate(chain.program, s, {.seconds = chain.seconds, .links = links});
    EXPECT_TRUE(r.ok());
    return r.ok() ? *r : Simulated{};
  };
  const Simulated none = out({});
  EXPECT_EQ(none.step_s, 12);
  // First: 0–4, on the link 4–7, there at 8, 8–12. Second: 4–8, 8–11, 12, 12–16.
  const Simulated overlap = out({.latency_s = 1, .bytes_per_s = 2});
  EXPECT_EQ(overlap.step_s, 16);
  EXPECT_EQ(overlap.ranks[1].begin_s, 8);
  EXPECT_EQ(overlap.ranks[1].waits_s, 0);
  ASSERT_EQ(overlap.messages.size(), 2U);
  EXPECT_EQ(overlap.messages[1].begin_s, 8);
  EXPECT_EQ(overlap.messages[1].end_s, 11);
  // The sender waits for its link: 0–4, 4–7, 7–11, 11–14, there at 15, to 19.
  const Simulated blocking = out({.latency_s = 1, .bytes_per_s = 2, .sends_overlap = false});
  EXPECT_EQ(blocking.step_s, 19);
  // A link that is slower than the stages: 4–10 and 10–16, there at 16 without latency.
  EXPECT_EQ(out({.bytes_per_s = 1}).step_s, 20);
}

TEST(Simulate, WhatIsSentIsHeldUntilItHasGone) {
  const Schedule s = made("forward_only", {2, 2, 2, 1});
  const std::vector<StagePrice> stages(2, {.forward_s = 4, .output_bytes = 6});
  const StageChain chain = chain_of(s, stages);
  const auto peaks = [&](double bytes_per_s) {
    const auto r = simulate(chain.program, s,
                            {.seconds = chain.seconds, .links = {.bytes_per_s = bytes_per_s}});
    EXPECT_TRUE(r.ok());
    return std::pair(r->ranks[0].peak_bytes, r->ranks[1].peak_bytes);
  };
  // On the link 4–16 and 16–28. Rank 0 makes the second at 4–8, while the first is going; rank 1
  // reads the first at 16–20, while the second is coming.
  EXPECT_EQ(peaks(.5), std::pair(int64_t{12}, int64_t{12}));
  // 4–7 and 8–11: of the first 0–7 and 4–11, of the second 4–11 and 8–15.
  EXPECT_EQ(peaks(2), std::pair(int64_t{12}, int64_t{12}));
  EXPECT_EQ(peaks(0), std::pair(int64_t{6}, int64_t{6}));
}

TEST(Simulate, TheSlowestStageSetsThePace) {
  const Schedule s = made("one_f_one_b", {3, 3, 8, 1});
  std::vector<StagePrice> stages(3, {.forward_s = 1, .backward_s = 2});
  stages[1] = {.forward_s = 2, .backward_s = 4};
  const StageChain chain = chain_of(s, stages);
  const auto out = simulate(chain.program, s, {.seconds = chain.seconds});
  ASSERT_TRUE(out.ok());
  // All of stage 1, before it the first forward of stage 0, behind it its last backward. It runs
  // forward at 1–3 and 3–5, and the first gradient comes at 6: the last stage's 3–4 and 4–6.
  EXPECT_EQ(out->ranks[1].waits_s, 1);
  EXPECT_EQ(out->step_s, 8 * 6 + 1 + 1 + 2);
}

TEST(Simulate, UpdatesOfTwoCopiesSumTheirGradientsOnce) {
  const Schedule s = made("chimera", {2, 2, 2, 1});
  const std::vector<StagePrice> stages(
      2, {.forward_s = 1, .backward_s = 1, .update_s = 5, .gradient_bytes = 100});
  const StageChain chain = chain_of(s, stages);
  const auto out = simulate(chain.program, with_update(s, chain.program),
                            {.seconds = chain.seconds, .links = {.bytes_per_s = 50}});
  ASSERT_TRUE(out.ok());
  ASSERT_EQ(out->messages.size(), 2U + 4U);  // outputs and their gradients of nothing; two sums
  const auto large = std::count_if(out->messages.begin(), out->messages.end(),
                                   [](const Simulated::Message& m) { return m.bytes == 100; });
  EXPECT_EQ(large, 2);
  EXPECT_EQ(out->step_s, 4 + 2 + 5);
}

TEST(Simulate, RefusesTimesThatAreNone) {
  const Schedule s = made("gpipe", {2, 2, 2, 1});
  const std::vector<StagePrice> stages(2);
  const StageChain chain = chain_of(s, stages);
  for (std::vector<double> seconds :
       {std::vector<double>(3, 1), std::vector<double>(chain.seconds.size(), -1),
        std::vector<double>(chain.seconds.size(), std::numeric_limits<double>::infinity())})
    EXPECT_FALSE(simulate(chain.program, s, {.seconds = seconds}).ok());
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Links& links : {Links{-1, 0}, Links{0, -1}, Links{nan, 0}, Links{0, nan}})
    EXPECT_FALSE(simulate(chain.program, s, {.seconds = chain.seconds, .links = links}).ok());
  EXPECT_FALSE(simulate(chain.program, s, {.seconds = chain.seconds, .together = -1}).ok());
  EXPECT_TRUE(simulate(chain.program, s, {.seconds = chain.seconds}).ok());
}

// --- the other simulator
// --------------------------------------------------------------------------

using Key = std::array<int, 4>;  // kind, stage, micro-batch, slice
Key key(const Instr& i) { return {static_cast<int>(i.kind), i.stage, i.micro_batch, i.slice}; }

struct Times3 {
  std::vector<double> f, b, w;  // per stage
  std::vector<int64_t> bytes;   // from each stage to the next
  Links links;
};

// begin[i] = max over what i waits for; rounds over all entries until no time moves.
class Relaxation {
 public:
  Relaxation(const Schedule& s, const Times3& t) : s_(s), t_(t) {
    for (size_t r = 0; r < s.ranks.size(); ++r)
      for (const Instr& i : s.ranks[r]) rank_[key(i)] = static_cast<int>(r);
  }

  std::map<Key, double> ends() {
    for (bool moves = true; moves;) {
      moves = false;
      std::map<std::pair<int, int>, double> link;
      for (size_t r = 0; r < s_.ranks.size(); ++r) {
        double free = 0;
        const auto& list = s_.ranks[r];
        for (size_t i = 0; i < list.size();) {
          size_t end = i + 1;
          while (list[end - 1].with_next) ++end;
          double begin = free, took = 0;
          for (size_t k = i; k < end; ++k) {
            // A pair's weight gradients are those of its own backward part.
            const bool is_inside = k > i && list[k].kind == PartKind::kWeightGradient;
            if (!is_inside) begin = std::max(begin, ready(list[k], static_cast<int>(r)));
            took += seconds(list[k]);
          }
          free = begin + took;
          const double done = free;
          for (size_t k = i; k < end; ++k) moves |= set(end_, key(list[k]), done);
          for (size_t k = i; k < end; ++k)
            moves |= send(list[k], static_cast<int>(r), done, free, link);
          i = end;
        }
      }
    }
    return end_;
  }

 private:
  static bool set(std::map<Key, double>& of, const Key& k, double v) {
    const auto [at, is_new] = of.insert({k, v});
    const bool moves = is_new || at->second != v;
    at->second = v;
    return moves;
  }
  double seconds(const Instr& i) const {
    const auto s = static_cast<size_t>(i.stage);
    const double n = s_.shape.n_slices;
    if (i.kind == PartKind::kForward) return t_.f[s] / n;
    if (i.kind == PartKind::kWeightGradient) return t_.w[s] / n;
    return (t_.b[s] + (s_.weight_gradients_apart ? 0 : t_.w[s])) / n;
  }
  double at(PartKind kind, int stage, const Instr& i, int slice, int rank) const {
    const Key k{static_cast<int>(kind), stage, i.micro_batch, slice};
    const auto& times = rank_.at(k) == rank ? end_ : comes_;
    const auto found = times.find(k);
    return found == times.end() ? 0 : found->second;
  }
  double ready(const Instr& i, int rank) const {
    double t = 0;
    const auto wait = [&](PartKind kind, int stage, int slice) {
      t = std::max(t, at(kind, stage, i, slice, rank));
    };
    if (i.kind == PartKind::kForward) {
      if (i.stage > 0) wait(PartKind::kForward, i.stage - 1, i.slice);
      if (i.slice > 0) wait(PartKind::kForward, i.stage, i.slice - 1);
    } else if (i.kind == PartKind::kBackward) {
      wait(PartKind::kForward, i.stage, i.slice);
      if (i.stage + 1 < s_.shape.n_stages) wait(PartKind::kBackward, i.stage + 1, i.slice);
      if (i.slice + 1 < s_.shape.n_slices) wait(PartKind::kBackward, i.stage, i.slice + 1);
    } else {
      wait(PartKind::kBackward, i.stage, i.slice);
    }
    return t;
  }
  bool send(const Instr& i, int rank, double done, double& free,
            std::map<std::pair<int, int>, double>& link) {
    const bool is_forward = i.kind == PartKind::kForward;
    const int next = i.stage + (is_forward ? 1 : -1);
    if (i.kind == PartKind::kWeightGradient || next < 0 || next == s_.shape.n_stages) return false;
    const int to = rank_.at({static_cast<int>(i.kind), next, i.micro_batch, i.slice});
    if (to == rank) return false;
    double& l = link[{rank, to}];
    const auto bytes = t_.bytes[static_cast<size_t>(is_forward ? i.stage : next)];
    double begin = std::max(done, l);
    if (!t_.links.sends_overlap) begin = std::max(begin, free);
    l = begin + static_cast<double>(bytes) / t_.links.bytes_per_s;
    if (!t_.links.sends_overlap) free = l;
    return set(comes_, key(i), l + t_.links.latency_s);
  }
  const Schedule& s_;
  const Times3& t_;
  std::map<Key, int> rank_;
  std::map<Key, double> end_, comes_;
};

TEST(Simulate, AgreesWithARelaxationOfAllTimes) {
  std::mt19937 random(5);
  const auto draw = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<uint32_t>(high - low + 1));
  };
  int compared = 0;
  for (const ScheduleDef* def : all_schedules())
    for (int round = 0; round < 60; ++round) {
      ScheduleShape shape = shape_of(def->name, draw(1, 6), draw(1, 14));
      if (def->takes_slices) shape.n_slices = draw(1, 4);
      if (!serves(*def, shape)) continue;
      const Schedule s = made(def->name, shape);
      // Multiples of 12 in quarters of it stay whole numbers, whatever the slices.
      Times3 t;
      t.links = {static_cast<double>(draw(0, 3)), 2, round % 2 == 0};
      std::vector<StagePrice> stages;
      for (int i = 0; i < shape.n_stages; ++i) {
        t.f.push_back(12 * draw(0, 3)), t.b.push_back(12 * draw(0, 3));
        t.w.push_back(12 * draw(0, 3)), t.bytes.push_back(2 * draw(0, 5));
        const double n = shape.n_slices;
        stages.push_back({.forward_s = t.f.back() / n,
                          .backward_s = t.b.back() / n,
                          .weight_gradients_s = t.w.back() / n,
                          .output_bytes = t.bytes.back()});
      }
      const StageChain chain = chain_of(s, stages);
      const auto out = simulate(chain.program, s, {.seconds = chain.seconds, .links = t.links});
      ASSERT_TRUE(out.ok()) << out.error().to_string();
      const auto ends = Relaxation(s, t).ends();
      ASSERT_EQ(out->items.size(), ends.size());
      for (const Simulated::Item& i : out->items) {
        const Part& p = chain.program.parts[static_cast<size_t>(i.run.part)];
        ASSERT_EQ(i.end_s,
                  ends.at({static_cast<int>(p.kind), p.stage, i.run.micro_batch, i.run.slice}))
            << def->name << " on " << shape.n_ranks << " ranks";
        ++compared;
      }
    }
  EXPECT_GT(compared, 20000);
}

// Memory by a clock of its own: at each begin of a part, what is saved and not yet read.
TEST(Simulate, PeaksAreThoseOfACount) {
  std::mt19937 random(9);
  for (const ScheduleDef* def : all_schedules())
    for (int round = 0; round < 20; ++round) {
      const ScheduleShape shape = shape_of(def->name, 1 + static_cast<int>(random() % 4),
                                           4 + 2 * static_cast<int>(random() % 4));
      if (!def->trains || !serves(*def, shape)) continue;
      const Schedule s = made(def->name, shape);
      std::vector<StagePrice> stages;
      for (int i = 0; i < shape.n_stages; ++i)
        stages.push_back({.forward_s = 1.0 + static_cast<double>(random() % 3),
                          .backward_s = 1.0 + static_cast<double>(random() % 3),
                          .weight_gradients_s = 1.0 + static_cast<double>(random() % 3),
                          .saved_bytes = 1 + static_cast<int64_t>(random() % 9),
                          .saved_for_backward_bytes = static_cast<int64_t>(random() % 9),
                          .saved_for_weights_bytes = static_cast<int64_t>(random() % 9)});
      const StageChain chain = chain_of(s, stages);
      const auto out = simulate(chain.program, s, {.seconds = chain.seconds});
      ASSERT_TRUE(out.ok());
      std::map<std::tuple<char, int, int>, const Simulated::Item*> items;
      for (const Simulated::Item& i : out->items) {
        const Part& p = chain.program.parts[static_cast<size_t>(i.run.part)];
        items[{p.kind == PartKind::kForward    ? 'F'
               : p.kind == PartKind::kBackward ? 'B'
                                               : 'W',
               p.stage, i.run.micro_batch}] = &i;
      }
      for (size_t rank = 0; rank < s.ranks.size(); ++rank) {
        int64_t most = 0;
        for (const Simulated::Item& now : out->items) {
          if (now.rank != static_cast<int>(rank)) continue;
          int64_t held = 0;
          const double t = now.begin_s;
          for (const auto& [k, item] : items) {
            const auto& [letter, stage, m] = k;
            if (item->rank != static_cast<int>(rank) || letter != 'F') continue;
            const StagePrice& p = stages[static_cast<size_t>(stage)];
            const Simulated::Item* b = items.at({'B', stage, m});
            const Simulated::Item* w = s.weight_gradients_apart ? items.at({'W', stage, m}) : b;
            held += item->begin_s <= t && t < w->end_s ? p.saved_bytes : 0;
            held += item->begin_s <= t && t < b->end_s ? p.saved_for_backward_bytes : 0;
            if (s.weight_gradients_apart)
              held += b->begin_s <= t && t < w->end_s ? p.saved_for_weights_bytes : 0;
          }
          most = std::max(most, held);
        }
        EXPECT_EQ(out->ranks[rank].peak_bytes, most) << def->name << ", rank " << rank;
      }
    }
}

}  // namespace
}  // namespace tegula::testing
