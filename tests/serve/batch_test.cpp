// Texts made together against each made alone: the same logits, bit by bit, the same tokens, and
// steps of decoding that they share.
#include <gtest/gtest.h>

#include <atomic>

#include "tegula/base/philox.h"
#include "tegula/io/file.h"
#include "tegula/serve/generator.h"
#include "tegula/train/trainer.h"

namespace tegula {
namespace {

constexpr int64_t kContext = 160;  // several pages, so that texts' pages interleave

// A model of each family, hardly trained: its logits are close to each other, so that a bit of
// difference has a chance to be another token.
std::string model_of(const std::string& type) {
  const std::string dir = ::testing::TempDir() + "batch_" + type;
  if (path_exists(dir + "/out/latest")) return dir + "/out";
  EXPECT_TRUE(make_directories(dir).ok());
  TrainConfig c;
  c.data = dir + "/text.txt", c.out = dir + "/out";
  std::string text;
  for (int i = 0; i < 2400; ++i) text += static_cast<char>('a' + (i * i + i / 5) % 23);
  EXPECT_TRUE(write_file(c.data, text).ok());
  c.model.type = type;
  c.model.n_layers = 2, c.model.n_heads = 4, c.model.d_model = 64, c.model.max_seqlen = kContext;
  if (type == "llama" || type == "moe") c.model.n_kv_heads = 2;
  if (type == "moe") c.model.n_experts = 4, c.model.n_experts_per_token = 2;
  c.batch = 2, c.steps = 2, c.eval_every = 0, c.threads = 1;
  auto t = Trainer::create(c);
  EXPECT_TRUE(t.ok()) << t.error().to_string();
  EXPECT_TRUE((*t)->run(std::atomic<bool>{false}).ok());
  return c.out;
}

struct Made {
  std::vector<std::string> texts;
  std::vector<GenerateStats> stats;
  BatchStats all;
};

Made make(const std::string& model, const std::vector<std::string>& prompts, RunnerOptions options,
          int64_t n, const GenerateEnd& end = {}) {
  auto g = Generator::load(model, options);
  EXPECT_TRUE(g.ok()) << g.error().to_string();
  Made m;
  m.texts.resize(prompts.size()), m.stats.resize(prompts.size());
  std::vector<TextRequest> requests;
  for (size_t i = 0; i < prompts.size(); ++i)
    requests.push_back(
        {prompts[i],
         n,
         {.temperature = 1.5, .seed = 7},
         [](void* to, std::string_view piece) { *static_cast<std::string*>(to) += piece; },
         &m.texts[i]});
  const Status st = (*g)->generate(requests, m.stats, m.all, end);
  EXPECT_TRUE(st.ok()) << st.error().to_string();
  return m;
}

std::vector<std::string> prompts() {
  std::vector<std::string> all;
  for (int i = 0; i < 5; ++i) {
    all.emplace_back();
    for (int j = 0; j < 1 + i * i * 8; ++j)
      all[static_cast<size_t>(i)] += static_cast<char>('a' + (i + j * j) % 23);
  }
  return all;
}

struct Setting {
  std::string type;
  DType dtype;
};
class Batch : public ::testing::TestWithParam<Setting> {};

TEST_P(Batch, EachTextIsWhatItIsAlone) {
  const std::string model = model_of(GetParam().type);
  const auto each = prompts();
  RunnerOptions options{.threads = 2, .dtype = GetParam().dtype};
  std::vector<std::string> want;
  for (const std::string& p : each) want.push_back(make(model, {p}, options, 60).texts[0]);
  for (const int64_t batch : {2, 5, 8})
    for (const int64_t chunk : {0, 1, 7})
      for (const Mode mode : {Mode::kExact, Mode::kFast}) {
        SCOPED_TRACE(cat("batch ", batch, ", chunk ", chunk));
        options.batch = batch, options.chunk = chunk, options.mode = mode;
        if (mode == Mode::kFast && (batch != 5 || chunk != 0)) continue;
        if (mode == Mode::kFast) {
          RunnerOptions one = options;
          one.batch = 1;
          for (size_t i = 0; i < each.size(); ++i)
            want[i] = make(model, {each[i]}, one, 60).texts[0];
        }
        const Made m = make(model, each, options, 60);
        EXPECT_EQ(m.texts, want);
        if (batch >= 5) EXPECT_EQ(m.all.decode_steps, 59);
      }
}

// Read again for each token, in one piece and in chunks; some contexts slide meanwhile. In f32
// alone: in bf16 AMX decodes in another order than it reads.
TEST_P(Batch, WithoutACacheTextsAreTheSame) {
  if (GetParam().dtype != DType::kF32) GTEST_SKIP() << "bf16";
  const std::string model = model_of(GetParam().type);
  RunnerOptions options{.threads = 2, .batch = 5};
  const Made cached = make(model, prompts(), options, 50);
  options.caches = false;
  const bool reads_alone = (*find_model(GetParam().type))->has_state;
  for (const int64_t chunk : {0, 100}) {
    SCOPED_TRACE(chunk);
    options.chunk = chunk;
    const Made whole = make(model, prompts(), options, 50);
    EXPECT_EQ(whole.texts, cached.texts);
    EXPECT_GT(whole.all.decode_ms, 0);
    if (chunk == 0 && !reads_alone) EXPECT_EQ(whole.all.decode_steps, 49);
  }
}

// By bits, not by what is drawn: 20 tokens behind prompts of uneven lengths.
TEST_P(Batch, LogitsHaveTheBitsOfATextAlone) {
  const std::string directory = model_of(GetParam().type) + "/latest";
  const auto config = load_model_config(**ModelFiles::open(directory));
  ASSERT_TRUE(config.ok());
  constexpr size_t kSteps = 20;
  const std::vector<size_t> lengths = {70, 3, 31};
  // Logits of each text after its prompt and after each step; prompts are read as many tokens at a
  // time as `chunk` says of each step.
  const auto run = [&](const std::vector<size_t>& texts, auto&& chunk) {
    auto r = Runner::create(
        *ModelFiles::open(directory), *config,
        {.threads = 2, .batch = static_cast<int64_t>(texts.size()), .dtype = GetParam().dtype});
    EXPECT_TRUE(r.ok()) << r.error().to_string();
    std::vector<std::vector<float>> logits(texts.size());
    std::vector<std::vector<int32_t>> tokens(texts.size());
    std::vector<ScheduledText> arrivals;
    for (size_t s = 0; s < texts.size(); ++s) {
      const size_t n = lengths[texts[s]];
      for (size_t i = 0; i < n + kSteps; ++i)
        tokens[s].push_back(static_cast<int32_t>((i * i + i / 3 + 5 * texts[s]) % 20));
      const auto all = static_cast<int64_t>(n + kSteps);
      arrivals.push_back({static_cast<int64_t>(s), static_cast<int64_t>(n), all});
    }
    BatchSchedule schedule{(*r)->pages(), {}};
    ScheduleLimits limits = (*r)->limits();
    for (size_t n_decoded = 0, n_read = 0; n_decoded < kSteps; ++n_read) {
      limits.chunk = chunk(n_read);
      auto step = next_step(std::move(schedule), arrivals, limits);
      EXPECT_TRUE(step.ok()) << step.error().to_string();
      schedule = std::move(step->after);
      arrivals.erase(arrivals.begin(), arrivals.begin() + step->n_admitted);
      std::vector<Runner::Piece> pieces;
      for (const auto& p : step->pieces)
        pieces.push_back(
            {schedule.find(p.id)->cached.pages, p.first,
             std::span<const int32_t>(tokens[static_cast<size_t>(p.id)])
                 .subspan(static_cast<size_t>(p.first), static_cast<size_t>(p.n_tokens))});
      const Status st = step->reads ? (*r)->read(pieces) : (*r)->decode(pieces);
      EXPECT_TRUE(st.ok()) << st.error().to_string();
      for (size_t i = 0; i < pieces.size(); ++i) {
        if (!step->pieces[i].is_last) continue;
        const auto row = (*r)->logits(i);
        auto& to = logits[static_cast<size_t>(step->pieces[i].id)];
        to.insert(to.end(), row.begin(), row.end());
      }
      n_decoded += step->reads ? 0 : 1;
    }
    return logits;
  };
  const auto at_once = [](size_t) { return kContext; };
  const auto together = run({0, 1, 2}, at_once);
  for (size_t s = 0; s < 3; ++s) {
    EXPECT_EQ(together[s], run({s}, at_once)[0]) << "text " << s;
    EXPECT_EQ(together[s].size(), (kSteps + 1) * static_cast<size_t>(config->vocab_size));
  }
  // In any chunks, of any sizes: of one token, of what ends within a text or between two.
  for (const uint64_t seed : {1, 2, 3}) {
    const auto any = [&](size_t step) {
      return 1 + static_cast<int64_t>(40 * philox_uniform(seed, 2, step));
    };
    const auto in_chunks = run({2, 0, 1}, any);
    for (size_t s = 0; s < 3; ++s)
      EXPECT_EQ(in_chunks[(s + 1) % 3], together[s]) << "text " << s << ", chunks " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, Batch,
    ::testing::Values(Setting{"gpt2", DType::kF32}, Setting{"gpt2", DType::kBF16},
                      Setting{"llama", DType::kF32}, Setting{"llama", DType::kBF16},
                      Setting{"moe", DType::kF32}, Setting{"lstm", DType::kF32},
                      Setting{"lstm", DType::kBF16}, Setting{"mlp", DType::kF32},
                      Setting{"gemma2", DType::kF32}, Setting{"mistral", DType::kBF16},
                      Setting{"decoder", DType::kF32}),
    [](const auto& p) { return p.param.type + "_" + std::string(dtype_name(p.param.dtype)); });

// Texts that end early leave their places and their pages to those that wait.
TEST(Batch, PlacesAreTakenByTheNext) {
  const std::string model = model_of("gpt2");
  auto each = prompts();
  for (const std::string& p : prompts()) each.push_back(p + "c");
  GenerateEnd end;
  end.stop = {"a", "b", "c"};
  const Made alone = [&] {
    Made all;
    for (const std::string& p : each) {
      const Made one = make(model, {p}, {.threads = 2}, 100, end);
      all.texts.push_back(one.texts[0]), all.stats.push_back(one.stats[0]);
    }
    return all;
  }();
  const Made three = make(model, each, {.threads = 2, .batch = 3}, 100, end);
  EXPECT_EQ(three.texts, alone.texts);
  int64_t longest = 0, sum = 0;
  for (size_t i = 0; i < each.size(); ++i) {
    EXPECT_EQ(three.stats[i].new_tokens, alone.stats[i].new_tokens);
    EXPECT_EQ(three.stats[i].ended, alone.stats[i].ended);
    longest = std::max(longest, alone.stats[i].new_tokens), sum += alone.stats[i].new_tokens;
  }
  EXPECT_GE(three.all.decode_steps, longest - 1);
  EXPECT_LT(three.all.decode_steps, sum - static_cast<int64_t>(each.size()));
}

// A context that is full slides for one text while the others go on.
TEST(Batch, TextsSlideApart) {
  const std::string model = model_of("gpt2");
  const auto each = prompts();
  const Made together = make(model, each, {.threads = 2, .batch = 4}, 200);
  for (size_t i = 0; i < each.size(); ++i)
    EXPECT_EQ(together.texts[i], make(model, {each[i]}, {.threads = 2}, 200).texts[0]) << i;
}

TEST(PagePool, GivesEachPageToOneText) {
  PagePool pool(5, 64);
  CachedText a, b;
  ASSERT_TRUE(pool.grow(a, 65).ok() && pool.grow(b, 1).ok() && pool.grow(a, 128).ok());
  EXPECT_EQ(a.pages, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(b.pages, (std::vector<int32_t>{2}));
  const Status st = pool.grow(b, 64 * 4);
  ASSERT_FALSE(st.ok());
  EXPECT_NE(st.error().message.find("of 5 2 are free"), std::string::npos);
  EXPECT_EQ(pool.n_free(), 2);
  pool.give_back(a);
  EXPECT_TRUE(a.pages.empty() && a.n_tokens == 0);
  ASSERT_TRUE(pool.grow(b, 64 * 4).ok());
  EXPECT_EQ(b.pages, (std::vector<int32_t>{2, 0, 1, 3}));
}

}  // namespace
}  // namespace tegula
