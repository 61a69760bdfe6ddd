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
