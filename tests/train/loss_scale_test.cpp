// Training in f16: gradients that overflow cost a step and nothing else, small ones are kept.
#include "tegula/train/loss_scale.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <memory>

#include "tegula/io/file.h"
#include "tegula/train/trainer.h"

namespace tegula {
namespace {

TrainConfig f16_run(const std::string& name) {
  const std::string dir = ::testing::TempDir() + name;
  (void)remove_tree(dir);
  EXPECT_TRUE(make_directories(dir).ok());
  TrainConfig c;
  c.data = dir + "/text.txt";
  std::string text;
  for (int i = 0; i < 300; ++i) text += cat("line ", i * i % 97, " of the text;\n");
  EXPECT_TRUE(write_file(c.data, text).ok());
  c.model.n_layers = 2, c.model.n_heads = 2, c.model.d_model = 16, c.model.max_seqlen = 12;
  c.batch = 3, c.steps = 12, c.warmup = 0, c.eval_every = 0, c.threads = 2, c.dtype = "f16";
  return c;
}

using Bits = std::map<std::string, std::vector<uint8_t>>;

// Weights and moments.
Bits bits_of(const Store& store) {
  Bits out;
  for (const auto& [name, entry] : store) {
    if (name.starts_with("loss_scale")) continue;
    const auto* at = static_cast<const uint8_t*>(entry.ref.data);
    out[name].assign(at, at + entry.type.bytes());
  }
  return out;
}

struct Seen {
  std::unique_ptr<Trainer> trainer;
  std::vector<StepReport> steps;
  std::vector<Bits> after;
  TrainSummary sum;
  Error error = Error();
};

Seen train(const TrainConfig& c, int64_t stop_after = -1) {
  struct Context {
    Seen seen;
    std::atomic<bool> stop{false};
    int64_t stop_after = -1;
  } at;
  at.stop_after = stop_after;
  auto t = Trainer::create(c);
  EXPECT_TRUE(t.ok()) << t.error().to_string();
  if (!t.ok()) return {};
  at.seen.trainer = std::move(*t);
  at.seen.trainer->context = &at;
  at.seen.trainer->on_step = [](void* context, const StepReport& r) {
    auto& to = *static_cast<Context*>(context);
    to.seen.steps.push_back(r);
    to.seen.after.push_back(bits_of(to.seen.trainer->store()));
    if (r.step == to.stop_after) to.stop = true;
  };
  auto sum = at.seen.trainer->run(at.stop);
  if (sum.ok()) at.seen.sum = *sum;
  if (!sum.ok()) at.seen.error = sum.error();
  return std::move(at.seen);
}

// A scale so large that gradients overflow at first, and that grows until they do again.
TEST(LossScale, OverflowSkipsHalvesAndGrowsAgain) {
  for (const int64_t accumulate : {1, 2}) {
    TrainConfig c = f16_run("overflow");
    c.accumulate = accumulate, c.loss_scale = kMostLossScale, c.loss_scale_every = 2, c.steps = 40;
    const Seen seen = train(c);
    ASSERT_EQ(seen.steps.size(), 40U) << seen.error.message;
    // The rule, in plain words.
    double scale = kMostLossScale;
    int64_t good = 0, skipped = 0, grown = 0;
    for (size_t i = 0; i < seen.steps.size(); ++i) {
      const StepReport& r = seen.steps[i];
      SCOPED_TRACE(cat("step ", r.step, ", scale ", scale, ", norm ", r.grad_norm));
      EXPECT_EQ(r.loss_scale, scale);
      EXPECT_EQ(r.is_skipped, !std::isfinite(r.grad_norm));
      EXPECT_TRUE(std::isfinite(r.loss));
      if (i > 0) EXPECT_EQ(seen.after[i] == seen.after[i - 1], r.is_skipped);
      if (r.is_skipped) {
        scale /= 2, good = 0, ++skipped;
      } else if (++good == 2) {
        good = 0, scale = std::min(scale * 2, kMostLossScale), ++grown;
      }
    }
    EXPECT_GT(skipped, 2);
    EXPECT_GT(grown, 2);
    EXPECT_GT(seen.sum.loss_scale.skipped, 0);
    EXPECT_EQ(seen.sum.loss_scale.skipped, skipped);
    EXPECT_EQ(seen.sum.loss_scale.scale, scale);
    EXPECT_TRUE(seen.steps[0].is_skipped && seen.steps[1].is_skipped);
    EXPECT_EQ(seen.sum.peak_bytes_measured, seen.sum.peak_bytes_planned);
    EXPECT_EQ(seen.sum.flops_per_step_counted, seen.sum.flops_per_step_planned);
  }
}

// A power of two goes in and out without rounding: where products are of f32, nothing of it is
// left.
TEST(LossScale, ScalingAloneChangesNoBit) {
  for (const int64_t accumulate : {1, 3}) {
    TrainConfig c = f16_run("scaled");
    c.accumulate = accumulate, c.passes = "-autocast", c.loss_scale = 256;
    TrainConfig plain = c;
    plain.dtype = "f32";
    const Seen a = train(c), b = train(plain);
    ASSERT_EQ(a.after.size(), 12U) << a.error.message;
    EXPECT_TRUE(a.after == b.after);
    for (size_t i = 0; i < a.steps.size(); ++i) EXPECT_EQ(a.steps[i].loss, b.steps[i].loss);
  }
}

// Three more bits than bf16's.
TEST(LossScale, LossesAreCloserToThoseOfF32ThanBf16) {
  std::map<std::string, double> off;
  std::vector<double> exact;
  for (const char* dtype : {"f32", "f16", "bf16"}) {
    TrainConfig c = f16_run("closer");
    c.dtype = dtype, c.steps = 20;
    const Seen seen = train(c);
    ASSERT_EQ(seen.steps.size(), 20U) << dtype << seen.error.message;
    for (size_t i = 0; i < 20; ++i)
      if (c.dtype == "f32")
        exact.push_back(seen.steps[i].loss);
      else
        off[dtype] += std::fabs(seen.steps[i].loss - exact[i]);
    if (c.dtype == "f16") EXPECT_EQ(seen.sum.loss_scale.skipped, 0);
  }
  EXPECT_GT(off["f16"], 0);
  EXPECT_LT(off["f16"], off["bf16"]);
}

// Steps of the same batch again and again, at one learning rate: steps that were skipped leave no
// trace, in AdamW's corrections either.
TEST(LossScale, SkippedStepsLeaveNoTrace) {
  TrainConfig c = f16_run("trace");
  c.min_lr = c.lr, c.loss_scale = kMostLossScale;
  c.batches = ::testing::TempDir() + "/trace_batches.txt";
  std::string lines;
  for (int i = 0; i < 60; ++i) lines += "10 200 777\n";
  ASSERT_TRUE(write_file(c.batches, lines).ok());
  c.steps = 30;
  const Seen with = train(c);
  ASSERT_EQ(with.steps.size(), 30U) << with.error.message;
  const auto is_skipped = [](const StepReport& r) { return r.is_skipped; };
  const auto first = std::find_if_not(with.steps.begin(), with.steps.end(), is_skipped);
  // Other scales round other small gradients: as far as the scale stays as it is.
  const auto last = std::find_if(first, with.steps.end(), is_skipped);
  const int64_t skipped = first - with.steps.begin(), end = last - with.steps.begin();
  ASSERT_GT(skipped, 1);
  ASSERT_GT(end - skipped, 3);
  c.loss_scale = first->loss_scale, c.steps = end - skipped;
  const Seen without = train(c);
  ASSERT_EQ(without.sum.loss_scale.skipped, 0);
  EXPECT_TRUE(with.after[static_cast<size_t>(end - 1)] == without.after.back());
}

TEST(LossScale, ResumesWithScaleAndBits) {
  for (const int64_t stop : {2, 9}) {
    TrainConfig c = f16_run("resumed");
    c.loss_scale = kMostLossScale, c.loss_scale_every = 3, c.steps = 16;
    c.out = ::testing::TempDir() + cat("/resumed_whole", stop);
    (void)remove_tree(c.out);
    const Seen whole = train(c);
    c.out = ::testing::TempDir() + cat("/resumed_parts", stop);
    (void)remove_tree(c.out);
    EXPECT_TRUE(train(c, stop).sum.interrupted);
    c.resume = true;
    const Seen rest = train(c);
    ASSERT_EQ(rest.steps.size(), static_cast<size_t>(16 - stop)) << rest.error.message;
    EXPECT_EQ(rest.steps[0].loss_scale, whole.steps[static_cast<size_t>(stop)].loss_scale);
    EXPECT_TRUE(rest.after.back() == whole.after.back());
    EXPECT_EQ(rest.sum.loss_scale.scale, whole.sum.loss_scale.scale);
    EXPECT_EQ(rest.sum.loss_scale.skipped, whole.sum.loss_scale.skipped);
    EXPECT_GT(rest.sum.loss_scale.skipped, 0);
  }
}

TEST(LossScale, RanksShareTheScale) {
  TrainConfig c = f16_run("ranks");
  c.batch = 4, c.loss_scale = kMostLossScale, c.loss_scale_every = 2, c.mode = "exact";
  const Seen one = train(c);
  c.mesh = Mesh{{{"dp", 2}}}, c.threads = 1;
  const Seen two = train(c);
  ASSERT_EQ(one.steps.size(), two.steps.size()) << two.error.message;
  EXPECT_GT(one.sum.loss_scale.skipped, 0);
  for (size_t i = 0; i < one.steps.size(); ++i) {
    EXPECT_EQ(one.steps[i].loss_scale, two.steps[i].loss_scale);
    EXPECT_EQ(one.steps[i].loss, two.steps[i].loss);
  }
}

// An overflow at any scale ends the run, as it does in f32: the scale falls to its least first.
TEST(LossScale, GradientsThatOverflowAtAnyScaleEndTheRun) {
  TrainConfig c = f16_run("hopeless");
  c.lr = 1e6, c.min_lr = 1e6, c.optimizer.clip = 0, c.optimizer.name = "sgd", c.steps = 100;
  const Seen seen = train(c);
  EXPECT_NE(seen.error.message.find("the loss is"), std::string::npos) << seen.error.message;
}

}  // namespace
}  // namespace tegula
