// The closed forms that the search prices pipelines by, beside the schedules' lists, checked and
// simulated entry by entry.
#include "tegula/planner/pipeline.h"

#include <gtest/gtest.h>

#include "tegula/plan/schedule_check.h"
#include "tegula/planner/model_presets.h"
#include "tests/plan/schedules.h"

namespace tegula::planner {
namespace {

Layout layout_of(Turns turns, int pp, int v) {
  Layout l;
  l.pp = pp, l.turns = turns, l.interleave = v;
  return l;
}

// Every schedule that the planner knows, as (pp, m, v).
template <class F>
void for_each_shape(F&& visit) {
  for (const Turns turns : kTurns)
    for (const int p : {2, 3, 4, 8})
      for (const int m : {3, 4, 8, 15, 16, 24, 32})
        for (const int v : {1, 2, 3}) {
          if ((turns == Turns::kInterleaved) != (v > 1)) continue;
          if (turns == Turns::kInterleaved && m < p) continue;
          if (turns == Turns::kZeroBubbleH2 && m < 2 * p - 1) continue;
          const Schedule s = testing::made(turns_name(turns), {p, p * v, m, 1});
          SCOPED_TRACE(cat(turns_name(turns), ", ", p, " ranks, ", m, " micro-batches, ", v));
          visit(turns, p, m, v, s);
        }
}

TEST(Pipeline, MicroBatchesInFlightAreTheLists) {
  for_each_shape([](Turns turns, int p, int m, int v, const Schedule& s) {
    const auto facts = check_schedule(s);
    ASSERT_TRUE(facts.ok());
    const Layout l = layout_of(turns, p, v);
    for (int rank = 0; rank < p; ++rank)
      EXPECT_EQ(layers_in_flight(l, m, rank, v), facts->peak_in_flight[static_cast<size_t>(rank)])
          << "rank " << rank;
  });
}

// With stages alike and messages for nothing: of a model of layers alone, in the planner's terms.
TEST(Pipeline, BubblesAreTheLists) {
  ModelSpec model = find_model_preset("gpt3-13b")->model;
  model.n_layers = 48, model.vocab_size = 1;
  ClusterSpec cluster = *parse_cluster("8xA100");
  cluster.device.inside = {1e30, 0};
  for_each_shape([&](Turns turns, int p, int m, int v, const Schedule& s) {
    if (8 % p != 0) return;
    for (const Remat remat : {Remat::kNone, Remat::kFull}) {
      cluster.n_devices = p;
      Job job;
      job.seqlen = 2048, job.batch_tokens = int64_t{2048} * m;
      Layout l = layout_of(turns, p, v);
      l.remat = remat;
      StepPricer pricer(model, *count_params(model), cluster, job);
      const StepPrice price = pricer.price(l);
      ASSERT_EQ(price.stage_layers, 48 / p);
      const LayerPrice& layer = pricer.layer(l);
      // All stages as slow as the last, which has the head (here next to nothing).
      const double n = 48.0 / p / v;
      const testing::Times times{
          n * layer.forward.total() + layer.last_forward.total() / v,
          n * (layer.input_backward.total() + layer.recompute.total()) +
              layer.last_input_backward.total() / v,
          n * layer.weight_backward.total() + layer.last_weight_backward.total() / v};
      const double ideal = m * v * (times.f + times.b + times.w);
      const Simulated simulated = testing::run(s, times);
      EXPECT_NEAR(price.seconds.bubble, simulated.step_s - ideal, 1e-9 * ideal);
    }
  });
}

// Unequal stages and messages are in it, and the closed form is near.
TEST(Pipeline, RealLayoutsEntryByEntry) {
  const ModelSpec model = find_model_preset("llama3-70b")->model;
  const ParamCount params = *count_params(model);
  const ClusterSpec cluster = *parse_cluster("256xH100");
  Job job;
  job.seqlen = 8192, job.batch_tokens = int64_t{8192} * 512;
  StepPricer pricer(model, params, cluster, job);
  for (const Turns turns : kTurns) {
    Layout l = layout_of(turns, 8, turns == Turns::kInterleaved ? 2 : 1);
    l.tp = 8, l.dp = 4, l.sp = true;
    ASSERT_TRUE(check_layout(l, model, cluster, job).ok());
    const StepPrice price = pricer.price(l);
    const auto run = run_pipeline(pricer, price);
    ASSERT_TRUE(run.ok()) << run.error().message;
    const double closed = price.step_s() - price.seconds.dp - price.seconds.optimizer;
    EXPECT_NEAR(run->simulated.step_s, closed, 0.05 * closed) << turns_name(turns);
  }
}

// ZB-V, Chimera, DualPipe and TeraPipe by their lists, against their own closed forms.
TEST(Pipeline, SchedulesWithoutClosedFormsAreRunEntryByEntry) {
  ModelSpec model = find_model_preset("gpt3-13b")->model;
  model.n_layers = 48, model.vocab_size = 1;
  ClusterSpec cluster = *parse_cluster("4xA100");
  cluster.device.inside = {1e30, 0}, cluster.device.launch_s = 0;
  Job job;
  const int64_t p = 4, m = 16;
  job.seqlen = 2048, job.batch_tokens = 2048 * m;
  StepPricer pricer(model, *count_params(model), cluster, job);
  const StepPrice price = pricer.price(layout_of(Turns::kOneFOneB, p, 1));
  const LayerPrice& layer = pricer.layer(price.layout);
  const double f = 12 * layer.forward.total(), b = 12 * layer.input_backward.total(),
               w = 12 * layer.weight_backward.total(), rest = price.seconds.optimizer;
  const double all = f + b + w, ideal = m * all;
  for (const OtherTurns& t : other_turns(pricer, price)) {
    ASSERT_TRUE(t.why_not.empty()) << t.why_not;
    const double bubble = t.step_s - rest - ideal;
    const double twice = price.memory.weights + price.memory.gradients + price.memory.optimizer;
    // The head, here next to nothing, is in none of the forms.
    const double near = 0.002 * ideal;
    if (t.schedule == "tera_pipe") EXPECT_NEAR(bubble, (p - 1) * all / 4, near);
    // Fills with two halves of stages less a half's weights, at most: less than ZB-H1.
    if (t.schedule == "zero_bubble_v") EXPECT_LT(bubble, (p - 1) * (f + b - w) + near);
    if (t.schedule == "zero_bubble_v") EXPECT_LT(bubble, price.seconds.bubble);
    if (t.schedule == "chimera") EXPECT_GT(bubble, 0);
    if (t.schedule == "dual_pipe") EXPECT_LT(bubble, price.seconds.bubble);
    // Weights and state twice; activations of at least one micro-batch in any case.
    const bool is_twice = t.schedule == "chimera" || t.schedule == "dual_pipe";
    const double kept = t.peak_bytes - (is_twice ? 2 : 1) * twice - price.memory.temporaries;
    const double one = 12 * layer.activations.layer;
    EXPECT_GT(kept, 0) << t.schedule;
    const double in_flight = t.schedule == "tera_pipe" ? 16 : t.schedule == "dual_pipe" ? 5 : 4;
    EXPECT_NEAR(kept, in_flight * one, 1e-9 * kept) << t.schedule;
  }
  // Three ranks cannot be paired.
  cluster.n_devices = 3;
  StepPricer three(model, *count_params(model), cluster, job);
  int refused = 0;
  for (const OtherTurns& t : other_turns(three, three.price(layout_of(Turns::kOneFOneB, 3, 1))))
    if (!t.why_not.empty()) ++refused;
  EXPECT_EQ(refused, 2);
}

TEST(Pipeline, TooManyEntriesAreRefused) {
  const ModelSpec model = find_model_preset("gpt2")->model;
  const ClusterSpec cluster = *parse_cluster("4xH100");
  Job job;
  job.seqlen = 1024, job.batch_tokens = int64_t{1024} << 24;
  StepPricer pricer(model, *count_params(model), cluster, job);
  EXPECT_FALSE(run_pipeline(pricer, pricer.price(layout_of(Turns::kOneFOneB, 4, 1))).ok());
}

}  // namespace
}  // namespace tegula::planner
