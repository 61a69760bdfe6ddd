// The calibration: what it predicts of laws that are known, how it keeps its calls.
#include "tegula/planner/calibration.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tegula/io/file.h"
#include "tegula/planner/local_fit.h"
#include "tegula/runtime/compile.h"
#include "tegula/train/step.h"

namespace tegula::planner {
namespace {

TEST(LocalFit, FindsASlopeBetweenPointsAndHoldsItsValueFarOutside) {
  std::vector<double> x;
  for (int i = 0; i <= 20; ++i) x.push_back(0.25 * i);
  std::vector<FitPoint> points;
  for (double& v : x) points.push_back({{&v, 1}, 1 + 0.1 * v});
  for (const double at : {0.6, 2.0, 3.3})
    EXPECT_NEAR(local_fit(points, {&at, 1}), 1 + 0.1 * at, 0.01);
  const double far = 100;
  EXPECT_GT(local_fit(points, {&far, 1}), 1);
  EXPECT_LT(local_fit(points, {&far, 1}), 1 + 0.1 * far);
  EXPECT_NEAR(local_fit(std::span(points).first(1), {&far, 1}), 1, 0.2);
}

std::shared_ptr<const Plan> step_plan(const std::string& family, int64_t layers, int64_t width,
                                      int64_t seqlen, int64_t batch) {
  TrainConfig c;
  c.model.type = family;
  c.model.n_layers = layers, c.model.n_heads = 2, c.model.d_model = width;
  c.model.max_seqlen = seqlen, c.model.vocab_size = 65, c.batch = batch;
  TEGULA_CHECK(c.model.resolve().ok(), "");
  const StepFunctions f = *build_step_functions(c);
  return compile(f.module, f.train_step, compile_options(c, Target::one_thread()))->plan;
}

// A machine of 3e10 operations and 1e10 bytes a second that waits 1 µs for every step, products
// along k less efficient the shorter they are.
double law(const Step& s) {
  const double k = s.in.empty() ? 1 : static_cast<double>(s.in[0].type.shape.numel());
  return 1e-6 + static_cast<double>(s.flops) / 3e10 * (1 + 10 / std::sqrt(k)) +
         static_cast<double>(s.bytes) / 1e10;
}

Calibration lawful(double whole_over_sum) {
  Calibration c("a machine of the test");
  for (const int64_t width : {32, 64, 96, 160})
    for (const int64_t batch : {1, 4, 16})
      for (const char* family : {"gpt2", "llama"}) {
        const auto plan = step_plan(family, 1, width, 16 * (1 + batch % 3), batch);
        std::vector<double> seconds;
        double sum = 0;
        for (const Step& s : plan->steps) seconds.push_back(law(s)), sum += law(s);
        c.add(*plan, 1, seconds, whole_over_sum * sum);
      }
  c.finish();
  return c;
}

double by_law(const Plan& plan) {
  double sum = 0;
  for (const Step& s : plan.steps) sum += law(s);
  return sum;
}

TEST(Calibration, PredictsStepsThatItHasNotSeen) {
  const Calibration c = lawful(1.25);
  for (const auto& [family, layers, width, seqlen, batch] :
       std::vector<std::tuple<const char*, int64_t, int64_t, int64_t, int64_t>>{
           {"gpt2", 4, 48, 24, 3}, {"gpt2", 2, 128, 64, 2}, {"llama", 3, 80, 40, 6}}) {
    const auto plan = step_plan(family, layers, width, seqlen, batch);
    const Predicted p = c.predict(*plan, 1);
    EXPECT_NEAR(p.seconds / (1.25 * by_law(*plan)), 1, 0.05) << family;
    EXPECT_LE(p.low, p.high);
    // The clip's factor reads one number of each weight: another program for every depth.
    EXPECT_LT(p.share_unknown, 0.05);
    EXPECT_LE(p.low, 1.1 * p.seconds);
    EXPECT_GE(p.high, 0.9 * p.seconds);
  }
  // Another number of threads is another kind of call, predicted only roughly, and that is said.
  EXPECT_GT(c.predict(*step_plan("gpt2", 1, 64, 16, 4), 2).share_unknown, 0.99);
}

TEST(Calibration, LoopsWidenOnlyIntervalsOfLoops) {
  // Runs of LSTMs take three times what their calls would: that says nothing of steps without
  // loops.
  Calibration c("x");
  for (const int64_t width : {32, 64, 96, 128, 160, 192})
    for (const char* family : {"gpt2", "lstm"}) {
      const auto plan = step_plan(family, 1, width, 32, 4);
      std::vector<double> seconds;
      double sum = 0;
      for (const Step& s : plan->steps) {
        seconds.push_back(s.regions.empty() ? law(s) : 0);
        sum += law(s);
      }
      c.add(*plan, 1, seconds, family == std::string("lstm") ? 3 * sum : sum);
    }
  c.finish();
  EXPECT_EQ(c.ratios(false).size(), 6);
  EXPECT_EQ(c.ratios(true).size(), 6);
  const Predicted dense = c.predict(*step_plan("gpt2", 2, 112, 32, 4), 1),
                  loop = c.predict(*step_plan("lstm", 1, 112, 32, 4), 1);
  EXPECT_LT(dense.high / dense.low, 1.5);
  EXPECT_GT(loop.high / loop.seconds, 1.2 * dense.high / dense.seconds);
}

TEST(Calibration, SlowerProductsMakeSlowerSteps) {
  // A planted fault of a half in products alone must show in what is predicted.
  Calibration c("x");
  for (const int64_t width : {32, 64, 96, 160}) {
    const auto plan = step_plan("gpt2", 1, width, 32, 4);
    std::vector<double> seconds;
    double sum = 0;
    for (const Step& s : plan->steps) {
      seconds.push_back(law(s) * (s.op->name == "dot" ? 1.5 : 1));
      sum += seconds.back();
    }
    c.add(*plan, 1, seconds, sum);
  }
  c.finish();
  const auto plan = step_plan("gpt2", 2, 128, 32, 4);
  EXPECT_GT(c.predict(*plan, 1).seconds, 1.15 * by_law(*plan));
}

TEST(Calibration, IsKeptAndRefusedWhereAltered) {
  const std::string folder = ::testing::TempDir() + "/calibration";
  const Calibration c = lawful(1);
  ASSERT_TRUE(c.save(folder).ok());
  Calibration again("a machine of the test");
  ASSERT_TRUE(again.load(folder).ok());
  const auto plan = step_plan("gpt2", 2, 48, 24, 3);
  EXPECT_EQ(again.predict(*plan, 1).seconds, c.predict(*plan, 1).seconds);
  EXPECT_EQ(again.ratios(), c.ratios());
  const std::string path = c.path(folder);
  std::string text = *read_file(path);
  const size_t digit = text.find("\"seconds\": ") + 11;
  text[digit] = text[digit] == '9' ? '8' : '9';
  ASSERT_TRUE(write_file(path, text).ok());
  const Status altered = again.load(folder);
  ASSERT_FALSE(altered.ok());
  EXPECT_NE(altered.error().message.find("altered"), std::string::npos) << altered.error().message;
  Calibration other("another machine");
  EXPECT_FALSE(other.load(folder).ok());
}

}  // namespace
}  // namespace tegula::planner
