// Tests what the planner says that a layer keeps, equal to what flows from its forward to its
// backward part in the step that the trainer would run, cut at that layer: every family that is
// built, both dtypes, several shapes.
#include "tegula/planner/built_saves.h"

#include <gtest/gtest.h>

#include "tegula/plan/schedule.h"
#include "tegula/planner/model_config.h"
#include "tegula/runtime/compile.h"
#include "tegula/train/step.h"

namespace tegula::planner {
namespace {

struct Toy {
  const char* family;
  const char* dtype;
  int64_t batch, seqlen, d_model, n_heads;
};

TrainConfig config_of(const Toy& t) {
  TrainConfig c;
  c.model.type = t.family;
  c.model.vocab_size = 97, c.model.n_layers = 4, c.model.d_model = t.d_model;
  c.model.n_heads = t.n_heads, c.model.max_seqlen = t.seqlen, c.batch = t.batch;
  const std::string_view f = t.family;
  if (f != "gpt2" && f != "lstm" && f != "mlp" && f != "decoder")
    c.model.n_kv_heads = t.n_heads / 2;
  c.dtype = t.dtype, c.mode = "fast", c.accumulate = 2;
  EXPECT_TRUE(c.model.resolve().ok());
  return c;
}

// Bytes of forward values that the backward part of layer 1 of 4 reads: its own, and its input.
int64_t kept_by_plan(const TrainConfig& c) {
  auto f = build_step_functions(c);
  EXPECT_TRUE(f.ok()) << f.error().message;
  SplitOptions cut;
  cut.cuts = {"layers.1", "layers.2", "layers.3"}, cut.n_micro_batches = 2;
  const ScheduleDef& def = **find_schedule("one_f_one_b");
  const auto schedule = make_schedule(def, default_shape(def, 4, 2));
  const auto compiled = compile_program(f->module, f->train_step, cut, *schedule,
                                        compile_options(c, Target::this_cpu(1)));
  EXPECT_TRUE(compiled.ok()) << compiled.error().message;
  const Program& p = compiled->planned->program;
  const auto part = [&](int i) { return p.parts[static_cast<size_t>(i)]; };
  int64_t bytes = 0;
  for (const Flow& flow : p.flows) {
    if (part(flow.from).kind != PartKind::kForward) continue;
    bool is_kept = false;
    for (const int to : flow.to)
      is_kept |= part(to).stage == 1 && part(to).kind == PartKind::kBackward;
    if (is_kept) bytes += flow.type.bytes();
  }
  return bytes;
}

TEST(BuiltSaves, EqualTheFlowsOfToyPrograms) {
  int n = 0;
  for (const char* family :
       {"gpt2", "llama", "qwen2", "mistral", "gemma2", "moe", "lstm", "mlp", "decoder"})
    for (const char* dtype : {"f32", "bf16"})
      for (const auto& [batch, seqlen, d, heads] : {std::array<int64_t, 4>{2, 96, 64, 4},
                                                    {1, 64, 32, 2},
                                                    {3, 40, 48, 4},
                                                    {4, 128, 96, 6}}) {
        const Toy toy{family, dtype, batch, seqlen, d, heads};
        SCOPED_TRACE(cat(family, " ", dtype, " ", batch, "x", seqlen, ", ", d, "/", heads));
        const TrainConfig c = config_of(toy);
        const ModelSpec model = model_spec(c.model, family);
        RankShape shape;
        shape.batch = static_cast<double>(batch), shape.seqlen = static_cast<double>(seqlen);
        shape.element_bytes = toy.dtype == std::string_view("f32") ? 4 : 2;
        ASSERT_TRUE(has_built_saves(model, shape));
        double planned = 0;
        for (const Saved& s : built_saves(model, shape)) planned += s.bytes;
        EXPECT_EQ(planned, static_cast<double>(kept_by_plan(c)));
        ++n;
      }
  EXPECT_GE(n, 50);
}

}  // namespace
}  // namespace tegula::planner
