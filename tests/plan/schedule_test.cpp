// Schedules as data: every part of every micro-batch once, in an order that can run, and the
// waiting and the memory that their papers promise, from formulas written down here.
#include "tegula/plan/schedule.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "tests/plan/schedules.h"

namespace tegula::testing {
namespace {

TEST(Schedule, EveryPartOfEveryMicroBatchOnceInAnOrderThatRuns) {
  std::map<std::string_view, int> served;
  for (const ScheduleDef* def : all_schedules())
    for (int p : {1, 2, 3, 4, 6, 8})
      for (int m : {1, 2, 3, 4, 6, 8, 13, 16, 24})
        for (int v : {1, 2, 3})
          for (int slices : {1, 3}) {
            if ((v != def->stages_per_rank && !def->takes_any_stages_per_rank) ||
                (slices > 1 && !def->takes_slices))
              continue;
            const ScheduleShape shape{p, p * v, m, slices};
            if (!serves(*def, shape)) continue;
            ++served[def->name];
            SCOPED_TRACE(cat(def->name, ", ", p, " ranks, ", v, " stages each, ", m,
                             " micro-batches, ", slices, " slices"));
            const Schedule s = made(def->name, shape);
            std::set<std::array<int, 4>> seen;
            std::map<std::array<int, 3>, int> last;
            for (size_t rank = 0; rank < s.ranks.size(); ++rank)
              for (const Instr& i : s.ranks[rank]) {
                const int kind = static_cast<int>(i.kind);
                EXPECT_TRUE(seen.insert({kind, i.stage, i.micro_batch, i.slice}).second);
                // Sums of gradients are chains: ascending.
                int& before = last[{static_cast<int>(rank), kind, i.stage}];
                EXPECT_GE(i.micro_batch, before);
                before = i.micro_batch;
              }
            const int parts = !def->trains ? 1 : def->weight_gradients_apart ? 3 : 2;
            EXPECT_EQ(seen.size(), static_cast<size_t>(parts * p * v * m * slices));
            EXPECT_EQ(run(s, {}).items.size(), seen.size());
            const auto facts = check_schedule(s);
            EXPECT_TRUE(facts.ok()) << facts.error().to_string();
          }
  for (const ScheduleDef* def : all_schedules()) EXPECT_GE(served[def->name], 6) << def->name;
}

// One rank after another runs them, and sums of gradients are ascending over all ranks.
TEST(Schedule, OneRankCanRunEachInTurns) {
  struct Recorder {
    const ScheduleLoop& loop;
    std::map<int, int> last;
    size_t n = 0;
    Status run(std::span<const PartRun> together, int) {
      EXPECT_EQ(together.size(), 1U);
      for (const PartRun& r : together) {
        ++n;
        if (!loop.is_summed(r.part)) continue;
        const auto before = last.find(r.part);
        EXPECT_EQ(r.micro_batch, before == last.end() ? 0 : before->second + 1);
        last[r.part] = r.micro_batch;
      }
      return {};
    }
  };
  for (const ScheduleDef* def : all_schedules())
    for (int p : {1, 2, 3, 4, 6, 8})
      for (int m = 1; m <= 24; ++m) {
        const ScheduleShape shape = shape_of(def->name, p, m);
        if (!serves(*def, shape)) continue;
        SCOPED_TRACE(cat(def->name, ", ", p, " ranks, ", m, " micro-batches"));
        const Schedule s = made(def->name, shape);
        const std::vector<StagePrice> stages(static_cast<size_t>(shape.n_stages));
        const StageChain chain = chain_of(s, stages);
        const Schedule whole = with_update(s, chain.program);
        ScheduleLoop loop(chain.program, whole, RunsOn::kOneRank);
        Recorder recorder{loop, {}, 0};
        const Status st = loop.follow(recorder);
        ASSERT_TRUE(st.ok()) << st.error().to_string();
        EXPECT_EQ(recorder.n, chain.program.parts.size() * static_cast<size_t>(m) -
                                  static_cast<size_t>(def->trains ? shape.n_stages * (m - 1) : 0));
      }
}

// (D − 1) / (D − 1 + N): D ranks, N micro-batches. Huang et al. 2019; Narayanan et al. 2021.
TEST(Schedule, PipelinesOfOneDirectionWaitForTheirEnds) {
  for (int d : {2, 3, 4, 8, 16})
    for (int n : {1, 2, d, 2 * d, 5 * d + 1}) {
      const double waits = (d - 1.0) / (d - 1 + n);
      SCOPED_TRACE(cat(d, " ranks, ", n, " micro-batches"));
      EXPECT_NEAR(run("forward_only", d, n).bubble, waits, 1e-12);
      EXPECT_NEAR(run("gpipe", d, n).bubble, waits, 1e-12);
      EXPECT_NEAR(run("one_f_one_b", d, n).bubble, waits, 1e-12);
      EXPECT_DOUBLE_EQ(run("in_turns", d, n).step_s, 3.0 * d * n);
      // A share of the time that computing takes: (p − 1) / m.
      const Simulated one = run("one_f_one_b", d, n);
      EXPECT_NEAR((one.step_s - 3.0 * n) / (3.0 * n), (d - 1.0) / n, 1e-12);
    }
}

// (p − 1) / (v·m) of the time that computing takes: Narayanan et al. 2021, section 2.2.2.
TEST(Schedule, InterleavedWaitsForOneStagesTime) {
  for (int p : {2, 3, 4, 8})
    for (int v : {1, 2, 3, 4})
      for (int m : {p, p + 1, 2 * p - 1, 2 * p, 3 * p + 2, 4 * p}) {
        SCOPED_TRACE(cat(p, " ranks, ", v, " stages each, ", m, " micro-batches"));
        const Schedule s = made("interleaved", {p, p * v, m, 1});
        const Simulated out = run(s, {1, 1, 1});
        EXPECT_NEAR((out.step_s - 3.0 * v * m) / (3.0 * v * m), (p - 1.0) / (v * m), 1e-12);
        // Its price: 1 + (p − 1) / (p·v) of the activations of 1F1B, that is p·v + p − 1 stages';
        // groups of more than p micro-batches keep that many more of v − 1 stages.
        const auto facts = check_schedule(s);
        ASSERT_TRUE(facts.ok());
        const int group = (m + m / p - 1) / (m / p);
        EXPECT_EQ(facts->peak_in_flight[0],
                  v == 1 ? p : std::min(v * m, p * v + p - 1 + (v - 1) * (group - p)));
      }
}

// Qi et al. 2023, table 2, where W ≤ F.
TEST(Schedule, ZeroBubblesWaitForWhatWeightGradientsDoNotFill) {
  const Times all[] = {{1, 1, 1}, {2, 2, 1}, {1, 1.25, .75}, {4, 5, 3}, {1, 1.5, .5}};
  for (int p : {2, 3, 4, 8})
    for (int m : {2 * p - 1, 2 * p, 4 * p})
      for (const Times& t : all) {
        SCOPED_TRACE(cat(p, " ranks, ", m, " micro-batches, ", t.f, " ", t.b, " ", t.w));
        const double work = m * (t.f + t.b + t.w);
        EXPECT_NEAR(run("zero_bubble", p, m, t).step_s - work, (p - 1) * (t.f + t.b - t.w), 1e-9);
        // A rank's waiting from its first part to its last: the step's end is not waited for.
        const Simulated h2 = run("zero_bubble_h2", p, m, t);
        double most = 0;
        for (const Simulated::OfRank& r : h2.ranks) most = std::max(most, r.waits_s);
        EXPECT_NEAR(most, (p - 1) * (t.f + t.b - 2 * t.w), 1e-9);
      }
  for (int p : {2, 3, 4, 8})
    for (int m : {2 * p - 1, 2 * p, 4 * p + 1}) {
      // ZB-V: none at all where parts take equally long (section 6).
      const Simulated v = run("zero_bubble_v", p, m);
      for (const Simulated::OfRank& r : v.ranks) EXPECT_NEAR(r.waits_s, 0, 1e-12);
      EXPECT_NEAR(v.step_s, 6.0 * m + (p - 1), 1e-12);
    }
}

// Li and Hoefler 2021, table 2 and section 3.1.
TEST(Schedule, ChimeraWaitsForHalfThePipeline) {
  for (int p : {2, 4, 8, 16}) {
    for (int m : {p, 2 * p, 4 * p}) {
      SCOPED_TRACE(cat(p, " ranks, ", m, " micro-batches"));
      EXPECT_NEAR(run("chimera", p, m, {1, 1, 0}).bubble, (p - 2.0) / (2.0 * m + p - 2), 1e-12);
    }
    EXPECT_NEAR(run("chimera", p, p, {1, 1, 1}).bubble, (p - 2.0) / (1.5 * p + p - 2), 1e-12);
  }
}

// DeepSeek-V3 2024, table 2: (p/2 − 1)(F&B + B − 3W), B with its W; exact where F = B = W, and
// where not, no worse.
TEST(Schedule, DualPipeWaitsForWhatItsPairsDoNotFill) {
  for (int p : {2, 4, 6, 8})
    for (int m : {2 * p, 2 * p + 2, 5 * p})
      for (double together : {1.0, 2.0 / 3}) {
        SCOPED_TRACE(cat(p, " ranks, ", m, " micro-batches, pairs take ", together));
        const Schedule s = made("dual_pipe", shape_of("dual_pipe", p, m));
        const auto waits = [&](const Times& t) {
          const Simulated out = run(s, t, together);
          double most = 0;
          for (const Simulated::OfRank& r : out.ranks) most = std::max(most, out.step_s - r.busy_s);
          return most;
        };
        const auto formula = [&](const Times& t) {
          return (p / 2.0 - 1) * (together * (t.f + t.b + t.w) + t.b + t.w - 3 * t.w);
        };
        EXPECT_NEAR(waits({1, 1, 1}), formula({1, 1, 1}), 1e-9);
        for (const Times& t : {Times{1, 1.2, .8}, Times{1, 1, .5}, Times{2, 2, 1}})
          EXPECT_LE(waits(t), formula(t) + 1e-9);
      }
}

// Slices are to a pipeline what micro-batches are: Li et al. 2021, section 3.2.
TEST(Schedule, SlicesOfTokensShortenThePipelinesEnds) {
  for (int p : {2, 4, 8})
    for (int m : {1, 2, 4})
      for (int t : {1, 2, 4, 8}) {
        SCOPED_TRACE(cat(p, " ranks, ", m, " micro-batches, ", t, " slices"));
        const Simulated out = run(made("tera_pipe", {p, p, m, t}), {1, 1, 1});
        EXPECT_NEAR(out.bubble, (p - 1.0) / (m * t + p - 1), 1e-12);
      }
}

// Memory of a rank: P + A·N with GPipe, of D micro-batches with 1F1B; the others by their papers'
// tables. A is kSavedBytes, of a stage.
TEST(Schedule, KeepsWhatItsPaperSays) {
  for (int p : {2, 4, 8})
    for (int m : {2 * p, 4 * p}) {
      SCOPED_TRACE(cat(p, " ranks, ", m, " micro-batches"));
      const auto kept = [&](std::string_view name, int rank) {
        const Schedule s = made(name, shape_of(name, p, m));
        const auto facts = check_schedule(s);
        EXPECT_TRUE(facts.ok()) << facts.error().to_string();
        const auto r = static_cast<size_t>(rank);
        // By the order alone and by the clock.
        EXPECT_EQ(run(s, {}).ranks[r].peak_bytes, kSavedBytes * facts->peak_in_flight[r]) << name;
        return facts->peak_in_flight[r];
      };
      for (int r = 0; r < p; ++r) {
        SCOPED_TRACE(cat("rank ", r));
        EXPECT_EQ(kept("in_turns", r), 1);
        EXPECT_EQ(kept("gpipe", r), m);
        EXPECT_EQ(kept("one_f_one_b", r), p - r);
        EXPECT_EQ(kept("zero_bubble", r), p);
        EXPECT_EQ(kept("zero_bubble_h2", r), 2 * p - 1);
        EXPECT_EQ(kept("zero_bubble_v", r), 2 * p);  // of half a rank's layers
        EXPECT_EQ(kept("dual_pipe", r), p + 1);
        EXPECT_GE(kept("chimera", r), p / 2 + 1);
        EXPECT_LE(kept("chimera", r), p);
        EXPECT_EQ(kept("tera_pipe", r), m);
      }
    }
}

TEST(Schedule, RanksHoldTheStagesTheyRun) {
  const auto stages = [](std::string_view name, int p, int m) {
    const auto facts = check_schedule(made(name, shape_of(name, p, m)));
    EXPECT_TRUE(facts.ok()) << facts.error().to_string();
    return facts->stages;
  };
  using Stages = std::vector<std::vector<int>>;
  EXPECT_EQ(stages("gpipe", 3, 2), (Stages{{0}, {1}, {2}}));
  EXPECT_EQ(stages("interleaved", 2, 4), (Stages{{0, 2}, {1, 3}}));
  EXPECT_EQ(stages("zero_bubble_v", 2, 4), (Stages{{0, 3}, {1, 2}}));
  EXPECT_EQ(stages("chimera", 4, 4), (Stages{{0, 3}, {1, 2}, {1, 2}, {0, 3}}));
}

TEST(Schedule, RefusesWhatItCannotServe) {
  const auto error = [](std::string_view name, const ScheduleShape& shape) {
    const auto s = make_schedule(**find_schedule(name), shape);
    EXPECT_FALSE(s.ok()) << name;
    return s.ok() ? "" : s.error().message;
  };
  const auto has = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(error("gpipe", {2, 4, 4, 1}), "1 stage on each rank: 4 stages do not go on 2 ranks");
  has(error("zero_bubble_v", {4, 4, 4, 1}), "2 stages on each rank: 4 stages do not go on 4 ranks");
  has(error("interleaved", {4, 6, 4, 1}), "equally many stages on each rank");
  has(error("chimera", {3, 3, 4, 1}), "3 ranks cannot be paired");
  has(error("dual_pipe", {4, 4, 6, 1}), "4 ranks and 6 micro-batches");
  has(error("gpipe", {2, 2, 2, 4}), "4 were asked for; tera_pipe does");
  has(error("gpipe", {2, 2, 0, 1}), "0 micro-batches");
}

TEST(Schedule, NamesAreListed) {
  const auto none = find_schedule("gipe");
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.error().message.find("chimera, dualpipe, forward, gpipe, in_turns, interleaved, "
                                      "1f1b, terapipe, zb-h1, zb-h2, zb-v"),
            std::string::npos)
      << none.error().message;
  EXPECT_EQ(*find_schedule("1f1b"), *find_schedule("one_f_one_b"));
  EXPECT_EQ(*find_schedule("zb-v"), *find_schedule("zero_bubble_v"));
}

}  // namespace
}  // namespace tegula::testing
