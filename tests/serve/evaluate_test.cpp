// Perplexity: the same bits as training's loss and as generation's logits, in any batch and on any
// number of threads; windows; distances between distributions.
#include "tegula/serve/evaluate.h"

#include <cmath>
#include <cstring>

#include "tegula/io/safetensors.h"
#include "tegula/models/checkpoint.h"
#include "tegula/ops/autodiff.h"
#include "tegula/runtime/compile.h"
#include "tegula/runtime/session.h"
#include "tegula/serve/generator.h"
#include "tests/io/temp_dir.h"
#include "tests/serve/small_model.h"

namespace tegula {
namespace {

std::vector<int32_t> ids(int64_t n, int64_t vocab = 23) {
  std::vector<int32_t> all;
  for (int64_t i = 0; i < n; ++i) all.push_back(static_cast<int32_t>((i * i + i / 3) % vocab));
  return all;
}

Evaluation run(const std::string& model, const TokenRows& rows, const EvaluateOptions& o) {
  auto e = evaluate(model, rows, o);
  EXPECT_TRUE(e.ok()) << e.error().message;
  return e.ok() ? std::move(*e) : Evaluation{};
}

// The loss of one step of training of which all targets but one are left out, for each: the terms
// of its sum.
std::vector<float> training_losses(const std::string& path, const std::vector<int32_t>& row,
                                   DType dtype, Mode mode) {
  const auto files = ModelFiles::open(path).value();
  const ModelConfig config = load_model_config(*files).value();
  const ModelDef& model = *find_model(config.type).value();
  const auto n = static_cast<int64_t>(row.size()) - 1;
  auto module = std::make_shared<Module>();
  Builder b(*module, "step");
  Context c(b, config);
  c.dtype = dtype;
  const Type type{DType::kI32, {1, n}};
  const Var tokens = b.param("tokens", type), targets = b.param("targets", type);
  const Var loss = model_loss(c, model, tokens, targets);
  b.result("loss", loss);
  std::vector<Var> weights;
  for (const WeightSpec& w : std::vector(c.weights()))
    weights.push_back(c.weight(w.name, w.type.shape));
  const auto grads = grad(loss, weights);
  for (size_t i = 0; i < grads.size(); ++i) b.result(cat("grad.", i), grads[i]);
  const FuncId f = b.finish_into_module().value();
  Rank rank(2);
  Store store(rank);
  EXPECT_TRUE(load_model_weights(*files, config, [&](const WeightSpec& w) {
                return store.get(w.name, {dtype, w.type.shape});
              }).ok());
  CompileOptions options;
  options.plan.target = Target::this_cpu(2);
  options.passes.pass.mode = mode;
  const auto session = Session::create(compile(module, f, options)->plan, rank).value();
  EXPECT_TRUE(session->bind_store(store).ok());
  std::vector<int32_t> one(static_cast<size_t>(n), -100);
  EXPECT_TRUE(session->bind_input("tokens", row.data()).ok());
  EXPECT_TRUE(session->bind_input("targets", one.data()).ok());
  std::vector<float> losses;
  for (size_t i = 0; i < one.size(); ++i) {
    std::fill(one.begin(), one.end(), -100);
    one[i] = row[i + 1];
    EXPECT_TRUE(session->run().ok());
    losses.push_back(*session->result("loss").as<float>());
  }
  return losses;
}

// A model so wide that mode exact sums its products in shards, but for the loss's.
std::string wide_model() {
  const std::string dir = ::testing::TempDir() + "evaluate_wide";
  if (path_exists(dir + "/out/latest")) return dir + "/out";
  EXPECT_TRUE(make_directories(dir).ok());
  TrainConfig c;
  c.data = dir + "/text.txt", c.out = dir + "/out";
  std::string text;
  for (int i = 0; i < 800; ++i) text += static_cast<char>('a' + (i * i + i / 5) % 23);
  EXPECT_TRUE(write_file(c.data, text).ok());
  c.model.type = "llama", c.model.max_seqlen = kContext;
  c.model.n_layers = 1, c.model.n_heads = 8, c.model.d_model = 512, c.model.d_ff = 64;
  c.batch = 1, c.seqlen = 16, c.steps = 1, c.eval_every = 0, c.threads = 2;
  auto t = Trainer::create(c);
  EXPECT_TRUE(t.ok()) << t.error().to_string();
  EXPECT_TRUE((*t)->run(std::atomic<bool>{false}).ok());
  return c.out;
}

struct Setting {
  const char* type;
  DType dtype;
  std::string model() const {
    return type == std::string_view("wide") ? wide_model() : model_of(type);
  }
};
class Evaluate : public ::testing::TestWithParam<Setting> {};

TEST_P(Evaluate, LossesAreTheTermsOfTrainings) {
  const DType dtype = GetParam().dtype;
  const std::string model = GetParam().model();
  const auto row = ids(70);
  for (const Mode mode : {Mode::kExact, Mode::kFast}) {
    const auto want = training_losses(model, row, dtype, mode);
    const auto e = run(model, {row}, {.threads = 2, .dtype = dtype, .mode = mode});
    EXPECT_EQ(e.losses, want) << static_cast<int>(mode);
    double sum = 0;
    for (const float x : want) sum += x;
    EXPECT_EQ(e.nll, sum);
    EXPECT_EQ(e.perplexity(), std::exp(sum / 69));
  }
}

// The log-probabilities of the tokens that generation draws are the terms of training's loss, too.
TEST_P(Evaluate, LossesAreThoseThatGenerationSays) {
  const DType dtype = GetParam().dtype;
  const std::string model = GetParam().model();
  if (dtype == DType::kBF16 && Target::this_cpu(1).isa == Isa::kAmx)
    GTEST_SKIP() << "AMX decodes bf16 in another order than it reads";
  for (const Mode mode : {Mode::kExact, Mode::kFast}) {
    auto g = Generator::load(model, {.threads = 2, .dtype = dtype, .mode = mode, .has_lse = true});
    ASSERT_TRUE(g.ok()) << g.error().message;
    std::vector<int32_t> row = ids(40);
    std::vector<TokenScore> scores;
    TextRequest r{"", 60, {.temperature = 3, .seed = 5}, [](void*, std::string_view) {}, nullptr};
    r.ids = row, r.scores = &scores, r.n_best = 2;
    GenerateStats stats;
    const Status st = (*g)->generate(r, stats, {.at_end_of_text = false});
    ASSERT_TRUE(st.ok()) << st.error().message;
    std::vector<float> said;
    for (const TokenScore& s : scores) row.push_back(s.token), said.push_back(-s.log_probability);
    const auto e = run(model, {row}, {.threads = 2, .dtype = dtype, .mode = mode});
    ASSERT_EQ(said.size(), 60u);
    EXPECT_EQ(std::vector<float>(e.losses.end() - 60, e.losses.end()), said)
        << static_cast<int>(mode);
  }
}

TEST_P(Evaluate, BitsDependOnNeitherThreadsNorBatch) {
  const DType dtype = GetParam().dtype;
  const std::string model = GetParam().model();
  const TokenRows rows = {ids(70), ids(20), ids(45)};
  EvaluateOptions o{.threads = 1, .context = 16, .stride = 5, .dtype = dtype};
  const auto want = run(model, rows, o);
  EXPECT_EQ(want.tokens, 69 + 19 + 44);
  for (const int64_t batch : {2, 7, 100})
    for (const int threads : {1, 3}) {
      o.batch = batch, o.threads = threads;
      const auto e = run(model, rows, o);
      EXPECT_EQ(e.losses, want.losses) << batch << ", " << threads;
      EXPECT_EQ(e.nll, want.nll);
    }
}

INSTANTIATE_TEST_SUITE_P(
    , Evaluate,
    ::testing::Values(Setting{"gpt2", DType::kF32}, Setting{"llama", DType::kF32},
                      Setting{"llama", DType::kBF16},
                      Setting{"gemma2", DType::kF32},  // capped logits
                      Setting{"moe", DType::kF32}, Setting{"lstm", DType::kF32},
                      Setting{"gpt2", DType::kBF16}, Setting{"mistral", DType::kF32},
                      Setting{"wide", DType::kF32}, Setting{"wide", DType::kBF16}),
    [](const auto& info) { return cat(info.param.type, "_", info.param.dtype); });

TEST(Evaluation, LogitsAreThoseOfGeneration) {
  const std::string model = model_of("llama"), path = ::testing::TempDir() + "logits.safetensors";
  const auto row = ids(100);
  run(model, {row}, {.threads = 2, .logits_path = path});
  const auto file = SafetensorsFile::open(path).value();
  const TensorRef& logits = *file.find("logits");
  auto g = Generator::load(model, {.threads = 2}).value();
  ASSERT_EQ(logits.shape[0], 99);
  for (size_t i = 0; i < 99; ++i) {
    ASSERT_TRUE(g->feed(std::span(row).subspan(i, 1)).ok());
    const auto all = g->logits();
    EXPECT_EQ(0, std::memcmp(all.data(), logits.as<float>() + i * all.size(), all.size_bytes()))
        << i;
  }
}

TEST(Evaluation, WindowsPredictEachTokenOnce) {
  const std::string model = model_of("gpt2");
  const auto row = ids(100);
  struct Case {
    int64_t context, stride, windows;
  };
  for (const auto& [context, stride, windows] : {Case{0, 0, 1},
                                                 {99, 0, 1},
                                                 {98, 0, 2},
                                                 {10, 0, 10},
                                                 {10, 10, 10},
                                                 {10, 5, 19},
                                                 {10, 1, 90}}) {
    const auto e =
        run(model, {row}, {.threads = 2, .context = context, .stride = stride, .batch = 4});
    SCOPED_TRACE(cat(context, ", ", stride));
    EXPECT_EQ(e.windows, windows);
    EXPECT_EQ(e.tokens, 99);
    ASSERT_EQ(e.losses.size(), 99u);
    const int64_t c = context == 0 ? kContext : context, s = stride == 0 ? c : stride;
    // A token of each window, by a row that ends with it.
    for (int64_t i = 0; i < 99; i += 7) {
      const int64_t begin = i < c ? 0 : (i - c) / s * s + s;
      const std::vector<int32_t> alone(row.begin() + begin, row.begin() + i + 2);
      const auto one = run(model, {alone}, {.threads = 2});
      EXPECT_EQ(one.losses.back(), e.losses[static_cast<size_t>(i)]) << i;
    }
  }
}

TEST(Evaluation, DistancesOfDistributions) {
  const float p[] = {0, std::log(3.0f), -INFINITY}, q[] = {1, 1, 1};
  // 1/4 and 3/4 to a third each.
  EXPECT_NEAR(divergence_of(p, q), .25 * std::log(.75) + .75 * std::log(2.25), 1e-7);
  EXPECT_EQ(divergence_of(p, p), 0);
  const std::string ours = model_of("llama"), theirs = model_of("gpt2"),
                    path = ::testing::TempDir() + "reference.safetensors";
  const auto row = ids(60);
  EvaluateOptions o{.threads = 2, .context = 24, .batch = 2, .against = ours};
  const auto same = run(ours, {row}, o);
  EXPECT_EQ(same.divergence->mean, 0);
  EXPECT_EQ(same.divergence->same_best, 59);
  o.against = theirs;
  const auto other = run(ours, {row}, o);
  EXPECT_GT(other.divergence->mean, 0);
  EXPECT_GT(other.divergence->largest, other.divergence->mean);
  EXPECT_EQ(other.losses, same.losses);
  // Logits that were stored say the same.
  run(theirs, {row}, {.threads = 1, .context = 24, .logits_path = path});
  o.against = path;
  const auto stored = run(ours, {row}, o);
  EXPECT_EQ(stored.divergence->mean, other.divergence->mean);
  EXPECT_EQ(stored.divergence->largest_at, other.divergence->largest_at);
  // By hand, from both files of logits.
  const std::string own = ::testing::TempDir() + "own.safetensors";
  run(ours, {row}, {.threads = 1, .context = 24, .logits_path = own});
  const auto file_p = SafetensorsFile::open(path).value(),
             file_q = SafetensorsFile::open(own).value();
  const auto v = static_cast<size_t>(file_p.find("logits")->shape[1]);
  double sum = 0;
  for (size_t i = 0; i < 59; ++i)
    sum += divergence_of(std::span(file_p.find("logits")->as<float>() + i * v, v),
                         std::span(file_q.find("logits")->as<float>() + i * v, v));
  EXPECT_EQ(other.divergence->mean, sum / 59);
  // They say nothing on other tokens.
  auto changed = row;
  changed[30] ^= 1;
  expect_error(evaluate(ours, {changed}, o), Code::kInvalidArgument,
               {"number 30 is", "other tokens"});
  expect_error(evaluate(ours, {ids(50)}, o), Code::kInvalidArgument,
               {"59 are predicted there, and 49"});
}

TEST(Evaluation, RefusesWhatItCannotPredict) {
  const std::string model = model_of("gpt2");
  const auto refused = [&](const TokenRows& rows, const EvaluateOptions& o,
                           std::initializer_list<std::string_view> words) {
    expect_error(evaluate(model, rows, o), Code::kInvalidArgument, words);
  };
  refused({}, {}, {"no tokens"});
  refused({ids(9), {1}}, {}, {"row 2 has 1 tokens", "at least 2"});
  refused({{1, 9999}}, {}, {"token 9999 of row 1"});
  refused({ids(9)}, {.context = kContext + 1}, {"windows of 161", "context of 160"});
  refused({ids(9)}, {.context = 4, .stride = 5}, {"stride of 5", "windows of 4"});
  expect_error(evaluate(model, {ids(9)}, {.against = "/none/x.safetensors"}), Code::kIo,
               {"x.safetensors"});
}

}  // namespace
}  // namespace tegula
