// The closed forms that the search prices pipelines by, beside the schedules' lists, checked and
// simulated entry by entry.
#include "tegula/planner/pipeline.h"

#include <gtest/gtest.h>

#include <map>

#include "tegula/plan/schedule_check.h"
#include "tegula/planner/model_presets.h"
#include "tests/plan/schedules.h"

namespace tegula::planner {
namespace {

// `n`: chunks of interleaved, slices of TeraPipe; no other schedule has any.
Layout layout_of(Turns turns, int pp, int n) {
  Layout l;
  l.pp = pp, l.turns = turns;
  (turns == Turns::kTeraPipe ? l.slices : l.interleave) = n;
  return l;
}

ScheduleShape shape_of(const Layout& l, int m) {
  return {static_cast<int>(l.pp), static_cast<int>(l.pp * l.chunks()), m,
          static_cast<int>(l.slices)};
}

// Every schedule that the planner knows, with every number that it can serve: its own word for it.
template <class F>
void for_each_shape(F&& visit) {
  std::map<Turns, int> served;
  for (const Turns turns : kTurns)
    for (const int p : {2, 3, 4, 8})
      for (const int m : {3, 4, 8, 15, 16, 24, 32})
        for (const int n : {1, 2, 3}) {
          const Layout l = layout_of(turns, p, n);
          if ((turns == Turns::kInterleaved || turns == Turns::kTeraPipe) != (n > 1)) continue;
          const auto s = make_schedule(**find_schedule(turns_name(turns)), shape_of(l, m));
          if (!s.ok() || (turns == Turns::kZeroBubbleH2 && m < 2 * p - 1) ||
              (turns == Turns::kInterleaved && m < p))
            continue;
          ++served[turns];
          SCOPED_TRACE(cat(turns_name(turns), ", ", p, " ranks, ", m, " micro-batches, ", n));
          visit(l, m, *s);
        }
  for (const Turns turns : kTurns) EXPECT_GE(served[turns], 5) << turns_name(turns);
}

TEST(Pipeline, MicroBatchesInFlightAreTheLists) {
  for_each_shape([](const Layout& l, int m, const Schedule& s) {
    const auto facts = check_schedule(s);
    ASSERT_TRUE(facts.ok());
    for (int rank = 0; rank < l.pp; ++rank)
      EXPECT_EQ(layers_in_flight(l, m, rank, l.chunks()),
                facts->peak_in_flight[static_cast<size_t>(rank)])
          << "rank " << rank;
  });
}

double head_of(const LayerPrice& p) {
  return p.last_forward.total() + p.last_input_backward.total() + p.last_weight_backward.total();
}

// With stages alike and messages for nothing: of a model of layers alone, in the planner's terms.
TEST(Pipeline, BubblesAreTheLists) {
  ModelSpec model = find_model_preset("gpt3-13b")->model;
  model.n_layers = 48, model.vocab_size = 1;
  ClusterSpec cluster = *parse_cluster("8xA100");
  cluster.device.inside = {1e30, 0};
  for_each_shape([&](Layout l, int m, const Schedule& s) {
    if (8 % l.pp != 0) return;
    for (const Remat remat : {Remat::kNone, Remat::kFull}) {
      cluster.n_devices = l.pp;
      Job job;
      job.seqlen = 2048 * 3, job.batch_tokens = job.seqlen * m;
      l.remat = remat;
      StepPricer pricer(model, *count_params(model), cluster, job);
      const StepPrice price = pricer.price(l);
      ASSERT_EQ(stages_of(model, job, l, 0).layers, 48 / l.pp * l.copies());
      const LayerPrice& layer = pricer.layer(l);
      // All stages as slow as the last, which has the head (here next to nothing); of opposite
      // pipelines a rank runs that stage for half of its micro-batches.
      const auto v = static_cast<double>(l.chunks()), n = 48.0 / static_cast<double>(l.pp) / v;
      const double head = 1 / v / static_cast<double>(l.copies());
      const testing::Times times{
          n * layer.forward.total() + head * layer.last_forward.total(),
          n * (layer.input_backward.total() + layer.recompute.total()) +
              head * layer.last_input_backward.total(),
          n * layer.weight_backward.total() + head * layer.last_weight_backward.total()};
      const double ideal = m * static_cast<double>(l.slices) * v * (times.f + times.b + times.w);
      const Simulated simulated = testing::run(s, times);
      // At most the head is missing on the others.
      const double waits = simulated.step_s - ideal,
                   heads = (static_cast<double>(l.pp) - 1) * head_of(layer);
      EXPECT_LE(price.seconds.bubble, waits + 1e-9 * ideal);
      EXPECT_GE(price.seconds.bubble, waits - heads - 1e-9 * ideal);
    }
  });
}

// The step entry by entry, where only the last stage has the head, and messages are sent. The
// closed form may have all stages as slow as the rank with the head: too slow is what fills and
// drains the pipeline, by the head's share (of the V, whose list is not split so, all that waits),
// and a message that hides. Of opposite pipelines it has all ranks at the mean of their two stages,
// from which each differs by half a head: a list ends no later than with all entries as slow as the
// slowest, nor sooner than with all as fast as the fastest.
void expect_near_closed_form(StepPricer& pricer, const StepPrice& price) {
  const auto run = run_pipeline(pricer, price);
  ASSERT_TRUE(run.ok()) << run.error().message;
  const LayerPrice& p = pricer.layer(price.layout);
  const double layer = p.forward.total() + p.input_backward.total() + p.weight_backward.total() +
                       p.recompute.total() + p.tp_forward + p.tp_backward + p.tp_recompute +
                       p.cp_forward + p.cp_backward + 2 * p.ep;
  const bool is_pair = price.layout.copies() == 2;
  const double head = (head_of(p) + p.tp_last) / (is_pair ? 2 : 1);
  const int64_t n = pricer.model().n_layers / price.layout.pp;
  ASSERT_EQ(n * price.layout.pp, pricer.model().n_layers);
  const double share = head / (static_cast<double>(n) * layer + head);
  const double closed = price.step_s() - price.seconds.dp - price.seconds.optimizer;
  const double late = is_pair ? share * closed : 0;
  const double waits =
      (price.layout.turns == Turns::kZeroBubbleV ? 1 : share) * price.seconds.bubble;
  EXPECT_LE(run->simulated.step_s, closed + late);
  EXPECT_GE(run->simulated.step_s, closed - (is_pair ? late : waits) - price.seconds.pp);
}

// Stages that differ: a pipeline fills by those that are faster.
TEST(Pipeline, UnequalStagesEntryByEntry) {
  const ModelSpec model = find_model_preset("llama3-8b")->model;
  ClusterSpec cluster = *parse_cluster("4xH100");
  cluster.device.inside = {1e30, 0};
  for (const std::vector<int64_t>& stages :
       {std::vector<int64_t>{8, 8, 8, 8}, {11, 8, 9, 4}, {3, 9, 18, 2}, {1, 1, 1, 29}})
    for (const Turns turns : {Turns::kGpipe, Turns::kOneFOneB}) {
      Job job;
      job.seqlen = 8192, job.batch_tokens = job.seqlen * 16, job.stages = stages;
      StepPricer pricer(model, *count_params(model), cluster, job);
      const StepPrice price = pricer.price(layout_of(turns, 4, 1));
      const auto run = run_pipeline(pricer, price);
      ASSERT_TRUE(run.ok());
      const double closed = price.step_s() - price.seconds.optimizer;
      EXPECT_LE(run->simulated.step_s, closed * (1 + 1e-9));
      EXPECT_GE(run->simulated.step_s, closed - price.seconds.bubble);
      // In one direction of 1F1B a slow stage before others has its own forward parts to do.
      if (stages[3] >= 8) EXPECT_NEAR(run->simulated.step_s, closed, 1e-9 * closed);
      for (const StageMemory& s : pricer.stages(price.layout))
        EXPECT_LE(s.memory.total(), price.peak_bytes());
    }
}

TEST(Pipeline, RealLayoutsEntryByEntry) {
  const ModelSpec model = find_model_preset("llama3-70b")->model;
  const ParamCount params = *count_params(model);
  const ClusterSpec cluster = *parse_cluster("256xH100");
  Job job;
  job.seqlen = 8192, job.batch_tokens = int64_t{8192} * 512;
  StepPricer pricer(model, params, cluster, job);
  for (const Turns turns : kTurns) {
    const bool has_number = turns == Turns::kInterleaved || turns == Turns::kTeraPipe;
    Layout l = layout_of(turns, 8, has_number ? 2 : 1);
    l.tp = 8, l.dp = 4, l.sp = true;
    ASSERT_TRUE(check_layout(l, model, cluster, job).ok());
    SCOPED_TRACE(turns_name(turns));
    expect_near_closed_form(pricer, pricer.price(l));
  }
}

// Tests what papers say of the four, and that opposite pipelines hold weights and state twice.
TEST(Pipeline, WaitsAndMemoryAreThePapers) {
  ModelSpec model = find_model_preset("gpt3-13b")->model;
  model.n_layers = 48, model.vocab_size = 1;
  ClusterSpec cluster = *parse_cluster("4xA100");
  cluster.device.inside = {1e30, 0}, cluster.device.launch_s = 0;
  cluster.device.product_start_s = 0;
  cluster.device.sustained = {};  // products of fewer tokens are as fast
  Job job;
  const int p = 4, m = 16;
  job.seqlen = 2048, job.batch_tokens = int64_t{2048} * m;
  StepPricer pricer(model, *count_params(model), cluster, job);
  const StepPrice plain = pricer.price(layout_of(Turns::kOneFOneB, p, 1));
  const LayerPrice& layer = pricer.layer(plain.layout);
  const double f = 12 * layer.forward.total(), b = 12 * layer.input_backward.total(),
               w = 12 * layer.weight_backward.total(), one = 12 * layer.activations.layer,
               head = head_of(layer);
  const auto state = [](const StepPrice& s) {
    return s.memory.weights + s.memory.gradients + s.memory.optimizer;
  };
  std::map<Turns, StepPrice> by;
  for (const StepPrice& s : by_every_schedule(pricer, model, plain.layout)) by[s.layout.turns] = s;
  ASSERT_EQ(by.size(), std::size(kTurns));
  const StepPrice& tera = by[Turns::kTeraPipe];
  // Half of the tokens take half of the time where nothing is launched.
  EXPECT_DOUBLE_EQ(tera.seconds.bubble, (p - 1) * (f + b + w) / 2);
  EXPECT_DOUBLE_EQ(tera.memory.activations, m * one);
  const StepPrice& v = by[Turns::kZeroBubbleV];
  EXPECT_LT(v.seconds.bubble, by[Turns::kZeroBubble].seconds.bubble);
  // The head is in none of the papers' forms: its stage stands on the rank that holds most.
  EXPECT_DOUBLE_EQ(v.memory.activations, p * one + layer.activations.last);
  EXPECT_DOUBLE_EQ(by[Turns::kChimera].memory.activations, p * one);
  // DeepSeek-V3 2024, table 2, where a pair takes as long as its two parts: at most that.
  const StepPrice& dual = by[Turns::kDualPipe];
  EXPECT_LE(dual.seconds.bubble, (p / 2.0 - 1) * (f + 2 * (b + w) - 3 * w + w));
  EXPECT_DOUBLE_EQ(dual.memory.activations, (p + 1) * one + layer.activations.last);
  for (const auto& [turns, price] : by) {
    const bool is_twice = turns == Turns::kChimera || turns == Turns::kDualPipe;
    EXPECT_NEAR(state(price) / state(plain), is_twice ? 2 : 1, 0.02) << turns_name(turns);
  }
  // Chimera's gaps for p micro-batches are p - 2 backward parts (section 3.1), but for the head.
  job.batch_tokens = 2048 * p;
  StepPricer few(model, *count_params(model), cluster, job);
  const StepPrice chimera = few.price(layout_of(Turns::kChimera, p, 1));
  const double closed = chimera.step_s() - chimera.seconds.optimizer - chimera.seconds.dp;
  const double gaps = (p - 2) * (b + w);
  EXPECT_NEAR(chimera.seconds.bubble / closed, gaps / (p * (f + b + w) + gaps), head / (f + b + w));
  // Three ranks cannot be paired.
  cluster.n_devices = 3;
  StepPricer three(model, *count_params(model), cluster, job);
  for (const StepPrice& s : by_every_schedule(three, model, layout_of(Turns::kOneFOneB, 3, 1)))
    EXPECT_EQ(s.layout.copies(), 1);
}

// Opposite pipelines sum each stage's gradients over two ranks more, and share its state.
TEST(Pipeline, CopiesOfAStageAreSummedAndShareItsState) {
  const ModelSpec model = find_model_preset("llama3-8b")->model;
  const ClusterSpec cluster = *parse_cluster("16xA100");
  Job job;
  job.seqlen = 8192, job.batch_tokens = job.seqlen * 64;
  StepPricer pricer(model, *count_params(model), cluster, job);
  Layout l = layout_of(Turns::kOneFOneB, 4, 1);
  l.tp = 4;
  const StepPrice alone = pricer.price(l);
  EXPECT_EQ(alone.seconds.dp, 0);
  l.turns = Turns::kChimera;
  const StepPrice pairs = pricer.price(l);
  EXPECT_GT(pairs.seconds.dp, 0);
  l.pp = 2, l.dp = 2, l.zero = 1;
  const StepPrice sharded = pricer.price(l);
  // Twelve bytes of two stages, one with either table, over two ranks of either pipeline.
  const RankParams rank = rank_params(model, *count_params(model), l);
  const auto layers = static_cast<double>(model.n_layers);
  EXPECT_NEAR(sharded.memory.optimizer, 12 * (layers * rank.layer + rank.first + rank.last) / 4, 1);
}

// Experts' exchanges hide behind the other half of a pair, and behind no more than there is.
TEST(Pipeline, PairsHideExpertsExchanges) {
  const ModelSpec model = find_model_preset("mixtral-8x7b")->model;
  const ClusterSpec cluster = *parse_cluster("64xH100");
  Job job;
  job.seqlen = 4096, job.batch_tokens = job.seqlen * 512;
  StepPricer pricer(model, *count_params(model), cluster, job);
  Layout l = layout_of(Turns::kOneFOneB, 4, 1);
  l.tp = 2, l.dp = 8, l.ep = 8, l.remat = Remat::kFull;
  const StepPrice plain = pricer.price(l);
  l.turns = Turns::kDualPipe;
  ASSERT_TRUE(check_layout(l, model, cluster, job).ok());
  const StepPrice pairs = pricer.price(l);
  EXPECT_LT(pairs.seconds.ep, plain.seconds.ep / 2);
  EXPECT_LT(pairs.together, 1);
  expect_near_closed_form(pricer, pairs);
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
