// Every family learns text, costs what was planned, resumes with the same bits, and gives token by
// token the logits that it gives at once.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>

#include "tegula/io/file.h"
#include "tegula/models/checkpoint.h"
#include "tegula/runtime/compile.h"
#include "tegula/serve/generator.h"
#include "tegula/train/trainer.h"

namespace tegula {
namespace {

// The decoder of the lectures: post-norm, ReLU, sinusoids.
const std::string kLectures = "decoder_of_the_lectures";

TrainConfig small_run(const std::string& family, const std::string& name) {
  const std::string dir = cat(::testing::TempDir(), "models_", family, "_", name);
  (void)remove_tree(dir);
  EXPECT_TRUE(make_directories(dir).ok());
  TrainConfig c;
  c.data = dir + "/text.txt", c.out = dir + "/out";
  std::string text;
  for (int i = 0; i < 300; ++i) text += cat("line ", i * i % 97, " of the text;\n");
  EXPECT_TRUE(write_file(c.data, text).ok());
  ModelConfig& m = c.model;
  m.type = family;
  if (family == kLectures) {
    m.type = "decoder";
    for (const auto& [name, value] : {std::pair("norm", "post"), std::pair("activation", "relu"),
                                      std::pair("positions", "sinusoid")})
      m.own.emplace_back(name, std::string(value));
  }
  m.n_layers = 2, m.n_heads = 4, m.d_model = 16, m.d_ff = 24, m.max_seqlen = 12;
  const ModelDef& model = **find_model(m.type);
  if (has_setting(model, setting::kKvHeads)) m.n_kv_heads = 2, m.head_dim = 6;
  for (const Field& f : model.fields)
    if (f.setting->name == "sliding_window") m.set(*f.setting, int64_t{5});
  for (const Field& f : model.fields)  // of two layers, one sees all or turns nothing
    if (f.setting->name == "sliding_window_pattern" || f.setting->name == "no_rope_layer_interval")
      m.set(*f.setting, int64_t{2});
  m.n_experts = 4;
  // How often each byte stands is soon learned, what stands behind a mask is not.
  if (model.sees_ahead) c.tokenizer = "bytes";
  c.batch = 4, c.steps = 40, c.lr = 1e-2, c.min_lr = 1e-3, c.warmup = 4, c.eval_every = 0;
  c.threads = 2;
  return c;
}

struct Losses {
  std::vector<double> losses;
  int64_t stop_at = -1;
  std::atomic<bool> stop{false};
};

TrainSummary train(const TrainConfig& c, Losses& run) {
  auto t = Trainer::create(c);
  if (!t.ok()) {
    ADD_FAILURE() << t.error().to_string();
    return {};
  }
  (*t)->context = &run;
  (*t)->on_step = [](void* context, const StepReport& r) {
    auto& at = *static_cast<Losses*>(context);
    at.losses.push_back(r.loss);
    if (r.step == at.stop_at) at.stop = true;
  };
  auto summary = (*t)->run(run.stop);
  EXPECT_TRUE(summary.ok()) << summary.error().to_string();
  return summary.ok() ? *summary : TrainSummary{};
}

// Logits [n, vocab_size] of all positions, by one forward pass without a cache.
std::vector<float> logits_at_once(const std::string& directory, std::vector<int32_t> tokens,
                                  DType dtype) {
  const auto files = *ModelFiles::open(directory);
  ModelConfig config = *load_model_config(*files);
  auto module = std::make_shared<Module>();
  Builder b(*module, "forward");
  Context c(b, config);
  c.dtype = dtype;
  const auto n = static_cast<int64_t>(tokens.size());
  const Var in = b.param("tokens", {DType::kI32, {1, n}});
  b.result("logits", model_logits(c, **find_model(config.type), in));
  const auto f = b.finish_into_module();
  EXPECT_TRUE(f.ok()) << f.error().to_string();
  CompileOptions options;
  options.passes.pass.is_inference = true;
  options.plan.target.n_threads = 2;
  const Compiled compiled = *compile(module, *f, options);
  Rank rank(2);
  Store store(rank);
  auto session = *Session::create(compiled.plan, rank);
  EXPECT_TRUE(session->bind_store(store).ok());
  EXPECT_TRUE(load_model_weights(*files, config, [&](const WeightSpec& w) {
                return store.get(w.name, {dtype, w.type.shape});
              }).ok());
  EXPECT_TRUE(session->bind("tokens", tokens.data()).ok());
  EXPECT_TRUE(session->run().ok());
  const auto* y = session->result("logits").as<float>();
  return {y, y + n * config.vocab_size};
}

class Family : public ::testing::TestWithParam<std::string> {};

std::vector<std::string> families() {
  std::vector<std::string> names = {kLectures};
  for (const ModelDef* model : all_models()) names.emplace_back(model->name);
  return names;
}

TEST_P(Family, LearnsAndCostsWhatWasPlanned) {
  Losses run;
  const TrainSummary s = train(small_run(GetParam(), "learns"), run);
  ASSERT_EQ(run.losses.size(), 40u);
  EXPECT_LT(run.losses.back(), 0.75 * run.losses.front());
  EXPECT_EQ(s.flops_per_step_planned, s.flops_per_step_counted);
  EXPECT_EQ(s.peak_bytes_planned, s.peak_bytes_measured);
}

TEST_P(Family, ResumesWithTheSameBits) {
  TrainConfig whole = small_run(GetParam(), "whole"), parts = small_run(GetParam(), "parts");
  whole.steps = parts.steps = 6;
  whole.model.dropout = parts.model.dropout = 0.1;
  Losses a, b, c;
  train(whole, a);
  b.stop_at = 3;
  EXPECT_TRUE(train(parts, b).interrupted);
  parts.resume = true;
  train(parts, c);
  EXPECT_EQ(c.losses.size(), 3u);
  for (const char* file : {"/latest/model.safetensors", "/latest/optimizer.safetensors"}) {
    const auto x = read_file(whole.out + file), y = read_file(parts.out + file);
    ASSERT_TRUE(x.ok() && y.ok());
    EXPECT_TRUE(*x == *y) << file;
  }
}

// Prefill, decoding and a second prefill behind what is cached give the bits of one forward pass.
void check_decoding(const std::string& out, DType dtype) {
  SCOPED_TRACE(dtype_name(dtype));
  auto g = Generator::load(out, {.threads = 2, .dtype = dtype});
  ASSERT_TRUE(g.ok()) << g.error().to_string();
  const std::vector<int32_t> tokens = {5, 3, 8, 1, 0, 7, 7, 2, 9, 4, 6, 5};
  const auto at_once = logits_at_once(out + "/latest", tokens, dtype);
  const auto v = static_cast<size_t>((*g)->config().vocab_size);
  for (int round = 0; round < 2; ++round) {  // the second finds the first one's leavings
    (*g)->reset();
    size_t at = 0;
    for (size_t n : {4, 1, 1, 3, 1, 2}) {
      const auto st = (*g)->feed(std::span(tokens).subspan(at, n));
      ASSERT_TRUE(st.ok()) << st.error().to_string();
      at += n;
      for (size_t i = 0; i < v; ++i)
        EXPECT_EQ((*g)->logits()[i], at_once[(at - 1) * v + i])
            << "token " << at << ", logit " << i;
    }
  }
  EXPECT_FALSE((*g)->feed(std::span(tokens).first(1)).ok());  // the context is full
}

TEST_P(Family, DecodesTheLogitsOfAForwardPass) {
  const TrainConfig c = small_run(GetParam(), "decodes");
  Losses run;
  train(c, run);
  if ((*find_model(c.model.type))->sees_ahead) {
    const auto g = Generator::load(c.out, {.threads = 2});
    ASSERT_FALSE(g.ok());
    EXPECT_NE(g.error().message.find("predicts no next one"), std::string::npos);
    return;
  }
  check_decoding(c.out, DType::kF32);
  if (!(*find_model(c.model.type))->f32_only.empty()) {
    const auto g = Generator::load(c.out, {.threads = 2, .dtype = DType::kF16});
    ASSERT_FALSE(g.ok());
    EXPECT_NE(g.error().message.find("--dtype f16"), std::string::npos);
    return;
  }
  check_decoding(c.out, DType::kF16);
  // In AMX's tiles many rows have an order of their own: docs/design.md, "Numeric order".
  if (machine_isa() != Isa::kAmx) check_decoding(c.out, DType::kBF16);
}

INSTANTIATE_TEST_SUITE_P(All, Family, ::testing::ValuesIn(families()),
                         [](const auto& p) { return p.param; });

}  // namespace
}  // namespace tegula
