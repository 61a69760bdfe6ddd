// Where in the model each step of a training step stands, after autodiff and every pass.
#include <gtest/gtest.h>

#include <set>

#include "tegula/plan/plan_json.h"
#include "tegula/runtime/compile.h"
#include "tegula/train/step.h"

namespace tegula {
namespace {

std::shared_ptr<const Plan> plan_of(const std::string& family, const std::string& dtype,
                                    const std::string& checkpoint) {
  TrainConfig c;
  c.model.type = family, c.model.n_layers = 3, c.model.n_heads = 2, c.model.d_model = 32;
  c.model.max_seqlen = 16, c.model.vocab_size = 61, c.batch = 4;
  c.dtype = dtype, c.checkpoint = checkpoint, c.tune = "off";
  EXPECT_TRUE(c.model.resolve().ok());
  const auto f = build_step_functions(c);
  EXPECT_TRUE(f.ok()) << f.error().to_string();
  const auto compiled = compile(f->module, f->train_step, compile_options(c, Target::one_thread()));
  EXPECT_TRUE(compiled.ok()) << compiled.error().to_string();
  return compiled->plan;
}

TEST(Scopes, EveryStepThatCountsStandsSomewhere) {
  for (const char* family : {"gpt2", "llama", "moe", "mlp", "lstm"})
    for (const auto& [dtype, checkpoint] :
         {std::pair<const char*, const char*>{"f32", "none"}, {"bf16", "sqrt"}}) {
      SCOPED_TRACE(cat(family, " ", dtype));
      const auto plan = plan_of(family, dtype, checkpoint);
      std::set<std::string> layers;
      int64_t flops = 0, placed = 0;
      for (const Step& s : plan->steps) {
        flops += s.flops;
        if (s.scope.empty()) continue;
        placed += s.flops;
        if (s.scope.starts_with("layers.")) layers.insert(s.scope.substr(0, 8));
        if (s.op->name == "attention" || s.op->name == "attention_bwd")
          EXPECT_NE(s.scope.find(".attn"), std::string::npos) << s.scope;
        if (s.op->name.starts_with("linear_cross_entropy")) EXPECT_EQ(s.scope, "head");
        if (s.op->name.starts_with("embedding")) EXPECT_EQ(s.scope, "embedding");
      }
      EXPECT_EQ(layers, std::set<std::string>({"layers.0", "layers.1", "layers.2"}));
      // The norm of all gradients stands nowhere.
      EXPECT_GT(static_cast<double>(placed), 0.999 * static_cast<double>(flops));
    }
}

TEST(Scopes, AreSavedWithThePlan) {
  const auto plan = plan_of("gpt2", "f32", "none");
  const auto again = plan_from_json(plan_to_json(*plan), "plan");
  ASSERT_TRUE(again.ok()) << again.error().to_string();
  ASSERT_EQ(again->steps.size(), plan->steps.size());
  for (size_t i = 0; i < plan->steps.size(); ++i)
    EXPECT_EQ(again->steps[i].scope, plan->steps[i].scope) << i;
}

}  // namespace
}  // namespace tegula
