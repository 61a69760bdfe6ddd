// Schedules as data: every part of every micro-batch once, in an order that can run, and the
// waiting and the memory that their papers promise.
#include "tegula/plan/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace tegula {
namespace {

// p stages of a chain: activations go up, gradients down, a stage's weight gradients stay there.
Program chain(int p, int m, bool apart) {
  Program g;
  g.n_stages = p, g.n_micro_batches = m;
  const Type t{DType::kF32, {16}};
  for (int s = 0; s < p; ++s) g.parts.push_back({PartKind::kForward, s, 0});
  for (int s = p; s-- > 0;) {
    g.parts.push_back({PartKind::kBackward, s, 0});
    if (apart) g.parts.push_back({PartKind::kWeightGradient, s, 0});
  }
  for (int s = 0; s < p; ++s) {
    const int f = g.find(PartKind::kForward, s), b = g.find(PartKind::kBackward, s);
    std::vector<int> readers{b};
    if (apart) readers.push_back(g.find(PartKind::kWeightGradient, s));
    g.flows.push_back({cat("saved.", s), t, f, readers});
    if (apart) g.flows.push_back({cat("made.", s), {DType::kF32, {0}}, b, {readers[1]}});
    if (s + 1 < p)
      g.flows.push_back(
          {cat("up.", s), {DType::kF32, {0}}, f, {g.find(PartKind::kForward, s + 1)}});
    if (s > 0)
      g.flows.push_back(
          {cat("down.", s), {DType::kF32, {0}}, b, {g.find(PartKind::kBackward, s - 1)}});
  }
  return g;
}

// B and W of one length as F each; together a B of two.
ScheduleCount count(const ScheduleDef& def, int p, int m) {
  const Program g = chain(p, m, def.weight_gradients_apart);
  std::vector<double> seconds;
  for (const Part& part : g.parts)
    seconds.push_back(part.kind == PartKind::kBackward && !def.weight_gradients_apart ? 2 : 1);
  auto c = count_schedule(g, schedule_of(def, g), seconds);
  EXPECT_TRUE(c.ok()) << def.name << ": " << c.error().to_string();
  return c.ok() ? *c : ScheduleCount{};
}

TEST(Schedule, EveryPartOfEveryMicroBatchOnce) {
  for (const ScheduleDef* def : all_schedules())
    for (int p : {1, 2, 3, 4, 8})
      for (int m : {1, 2, 3, 4, 8, 13}) {
        SCOPED_TRACE(cat(def->name, ", ", p, " stages, ", m, " micro-batches"));
        const ScheduleCount c = count(*def, p, m);
        std::map<std::pair<int, int>, int> seen;
        std::map<int, int> last;
        for (const PartRun& r : c.order) {
          ++seen[{r.part, r.micro_batch}];
          // Sums of gradients are chains: ascending.
          EXPECT_EQ(r.micro_batch, last.contains(r.part) ? last[r.part] + 1 : 0);
          last[r.part] = r.micro_batch;
        }
        EXPECT_EQ(seen.size(), static_cast<size_t>((def->weight_gradients_apart ? 3 : 2) * p * m));
        for (const auto& [run, times] : seen) EXPECT_EQ(times, 1);
      }
}

TEST(Schedule, WaitsAndKeepsWhatItsPaperSays) {
  for (int p : {2, 4, 8})
    for (int m : {p, 2 * p, 4 * p}) {
      SCOPED_TRACE(cat(p, " stages, ", m, " micro-batches"));
      const auto of = [&](std::string_view name) { return count(**find_schedule(name), p, m); };
      const ScheduleCount turns = of("in_turns"), gpipe = of("gpipe"), one = of("one_f_one_b"),
                          zero = of("zero_bubble");
      EXPECT_DOUBLE_EQ(turns.seconds, 3.0 * p * m);
      // (p − 1) / (m + p − 1) of the time: Huang et al. 2019; Narayanan et al. 2021.
      EXPECT_NEAR(gpipe.bubble, (p - 1.0) / (m + p - 1), 1e-12);
      EXPECT_NEAR(one.bubble, (p - 1.0) / (m + p - 1), 1e-12);
      // (p − 1)(F + B − W) is left of it: Qi et al. 2023, table 2.
      EXPECT_NEAR(zero.seconds, 3.0 * m + (p - 1), 1e-12);
      for (int s = 0; s < p; ++s) {
        const auto stage = static_cast<size_t>(s);
        EXPECT_EQ(turns.peak_bytes[stage], 64);
        EXPECT_EQ(gpipe.peak_bytes[stage], 64 * m);
        EXPECT_EQ(one.peak_bytes[stage], 64 * std::min(m, p - s));
        EXPECT_LE(zero.peak_bytes[stage], 64 * std::min(m, p));
      }
    }
}

TEST(Schedule, ADeadlockIsNamed) {
  const Program g = chain(2, 2, false);
  Schedule s = (*find_schedule("gpipe"))->make(2, 2);
  // The first stage goes back before the second one went forward, and the second waits for it.
  std::swap(s[0][1], s[0][2]);
  std::swap(s[1][0], s[1][1]);
  const std::vector<double> seconds(g.parts.size(), 1);
  const auto c = count_schedule(g, s, seconds);
  ASSERT_FALSE(c.ok());
  EXPECT_NE(c.error().message.find("can never go on: stage 0's backward of 0 waits for stage 1's "
                                   "backward of 0; stage 1's forward of 1 waits for stage 0's "
                                   "forward of 1"),
            std::string::npos)
      << c.error().message;
}

TEST(Schedule, NamesAreListed) {
  const auto none = find_schedule("gipe");
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.error().message.find("gpipe, in_turns, one_f_one_b, zero_bubble"),
            std::string::npos);
}

}  // namespace
}  // namespace tegula
