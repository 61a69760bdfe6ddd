// Tuned plans: other sizes, the same bits; the sizes are part of the plan, on paper too.
#include "tegula/runtime/tuner.h"

#include <gtest/gtest.h>

#include "tegula/kernels/tuning.h"
#include "tegula/plan/plan_json.h"
#include "tegula/plan/verify.h"
#include "tegula/runtime/compile.h"
#include "tegula/train/step.h"
#include "tests/common/run_plan.h"
#include "tests/io/temp_dir.h"

namespace tegula {
namespace {

StepFunctions small_step(std::string_view dtype = "f32") {
  TrainConfig c;
  c.model.vocab_size = 70, c.model.n_layers = 1, c.model.n_heads = 2, c.model.d_model = 64;
  c.model.max_seqlen = 24, c.batch = 4, c.dtype = dtype;
  EXPECT_TRUE(c.model.resolve().ok());
  auto f = build_step_functions(c);
  EXPECT_TRUE(f.ok()) << f.error().to_string();
  return *f;
}

std::shared_ptr<const Plan> compiled(const StepFunctions& f, const CompileOptions& o) {
  auto module = std::make_shared<Module>(*f.module);
  auto c = compile(module, f.train_step, o);
  EXPECT_TRUE(c.ok()) << c.error().to_string();
  return c->plan;
}

int tuned_steps(const Plan& plan) {
  int n = 0;
  for (const Step& s : plan.steps) n += !(s.tuning == Tuning{});
  return n;
}

std::vector<TensorRef> at_bounds(const std::vector<PlanTensor>& tensors) {
  std::vector<TensorRef> refs;
  for (const PlanTensor& t : tensors) {
    refs.push_back(contiguous_ref(nullptr, t.type));
    std::copy_n(t.stride, kMaxRank, refs.back().stride);
  }
  return refs;
}

// Some point other than the rule for every call of the plan.
TuningTable table_for(const Plan& plan, size_t which) {
  TuningTable table;
  for (const Step& s : plan.steps) {
    if (!s.kernel || !s.kernel->tuning) continue;
    const auto in = at_bounds(s.in), out = at_bounds(s.out);
    const KernelQuery q{&s.attrs, in, out, nullptr, &plan.target};
    const auto points = s.kernel->tuning->points(q);
    if (points.size() < 2) continue;
    TunedCall call;
    call.tuning = points[1 + which % (points.size() - 1)];
    table.put(tuning_key(*s.kernel, q), call);
  }
  return table;
}

TEST(Tuner, TunedPlansGiveTheBitsOfTheRuleAndReload) {
  const StepFunctions f = small_step();
  CompileOptions o;
  o.plan.target.n_threads = 2, o.plan.verify = true;
  const auto plain = compiled(f, o);
  const auto in = test::random_inputs(*plain->module, (*plain->module)[plain->function], 1);
  const auto want = test::run_plan(*plain, in);
  EXPECT_EQ(tuned_steps(*plain), 0);
  for (size_t which = 0; which < 12; ++which) {
    const TuningTable table = table_for(*plain, which * 7);
    ASSERT_GT(table.size(), 3u);
    CompileOptions tuned = o;
    tuned.plan.tunings = &table;
    const auto plan = compiled(f, tuned);
    EXPECT_GT(tuned_steps(*plan), 3);
    EXPECT_TRUE(verify_plan(*plan).ok());
    const auto have = test::run_plan(*plan, in);
    for (size_t r = 0; r < want.size(); ++r) ASSERT_EQ(have[r].bytes, want[r].bytes) << which;
    auto loaded = plan_from_json(plan_to_json(*plan), "plan.json");
    ASSERT_TRUE(loaded.ok()) << loaded.error().to_string();
    EXPECT_EQ(loaded->to_string(), plan->to_string());
    EXPECT_EQ(tuned_steps(*loaded), tuned_steps(*plan));
  }
}

TEST(Tuner, APlanWithATuningNoKernelHasIsRefused) {
  const StepFunctions f = small_step();
  CompileOptions o;
  Plan plan = *compiled(f, o);
  for (Step& s : plan.steps)
    if (s.kernel && !s.kernel->tuning) {
      s.tuning.knob[0] = 1;
      break;
    }
  EXPECT_FALSE(verify_plan(plan).ok());
  plan = *compiled(f, o);
  for (Step& s : plan.steps)
    if (s.kernel && s.kernel->tuning) s.tuning.knob[3] = 99;
  EXPECT_FALSE(verify_plan(plan).ok());
}

TEST(Tuner, QuickTuningKeepsWhatItFoundAndAsksNoMore) {
  const TempDir dir;
  for (const char* dtype : {"f32", "bf16"}) {
    const StepFunctions f = small_step(dtype);
    CompileOptions o;
    o.plan.target.n_threads = 1, o.plan.verify = true;
    if (std::string_view(dtype) == "bf16") o.passes.pass.compute_dtype = DType::kBF16;
    const auto plain = compiled(f, o);
    o.tune = {TuneMode::kQuick, (dir / "cache")};
    auto module = std::make_shared<Module>(*f.module);
    auto first = compile(module, f.train_step, o);
    ASSERT_TRUE(first.ok()) << first.error().to_string();
    // AMX's products of bf16 leave nothing to choose.
    const bool is_tunable = table_for(*plain, 0).size() > 0;
    EXPECT_TRUE(is_tunable || dtype == std::string_view("bf16"));
    ASSERT_EQ(first->notes.size(), is_tunable ? 1u : 0u);
    if (is_tunable) EXPECT_NE(first->notes[0].find((dir / "cache")), std::string::npos);
    const auto in = test::random_inputs(*plain->module, (*plain->module)[plain->function], 2);
    const auto want = test::run_plan(*plain, in), have = test::run_plan(*first->plan, in);
    for (size_t r = 0; r < want.size(); ++r) EXPECT_EQ(have[r].bytes, want[r].bytes);
    module = std::make_shared<Module>(*f.module);
    auto second = compile(module, f.train_step, o);
    ASSERT_TRUE(second.ok());
    EXPECT_TRUE(second->notes.empty());
    EXPECT_EQ(second->plan->to_string(), first->plan->to_string());
  }
}

}  // namespace
}  // namespace tegula
