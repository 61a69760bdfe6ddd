// Texts made together against each made alone: the same logits, bit by bit, the same tokens, and
// steps of decoding that they share.
#include <gtest/gtest.h>

#include <atomic>

#include "tegula/base/philox.h"
#include "tegula/io/file.h"
#include "tegula/io/json.h"
#include "tegula/io/safetensors.h"
#include "tegula/serve/generator.h"
#include "tests/serve/small_model.h"

namespace tegula {
namespace {

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
  std::optional<DType> cache_dtype = {};
};
class Batch : public ::testing::TestWithParam<Setting> {};

TEST_P(Batch, EachTextIsWhatItIsAlone) {
  const std::string model = model_of(GetParam().type);
  const auto each = prompts();
  RunnerOptions options{
      .threads = 2, .dtype = GetParam().dtype, .cache_dtype = GetParam().cache_dtype};
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

// LongRoPE's list follows the tokens that a text may reach itself, not those of its companions: 32
// and 122 here, where 40 were trained at first. Its angles are as in a model that has the list
// alone.
TEST(LongRope, IsChosenByEachText) {
  const std::string plain = model_of("phi3");
  const auto with = [&](const std::string& name, const char* lists) {
    const std::string dir = ::testing::TempDir() + "batch_longrope_" + name;
    EXPECT_TRUE(make_directories(dir).ok());
    EXPECT_TRUE(
        write_file(dir + "/tokenizer.json", read_file(plain + "/latest/tokenizer.json").value())
            .ok());
    // Products are larger than after so few steps, so that it matters where a token stands.
    const auto file = SafetensorsFile::open(plain + "/latest/model.safetensors").value();
    std::vector<std::vector<float>> held;
    std::vector<NamedTensor> tensors;
    for (const NamedTensor& t : file.tensors()) {
      const auto* x = t.tensor.as<float>();
      held.emplace_back(x, x + t.tensor.numel());
      if (t.name.find("proj") != t.name.npos)
        for (float& w : held.back()) w *= 8;
      TensorRef scaled = t.tensor;
      scaled.data = held.back().data();
      tensors.push_back({t.name, scaled});
    }
    EXPECT_TRUE(write_safetensors(dir + "/model.safetensors", tensors).ok());
    Json config = Json::parse(read_file(plain + "/latest/config.json").value(), "c").value();
    config.set("original_max_position_embeddings", 40);
    config.set("rope_scaling", Json::parse(lists, "l").value());
    config.set("rope_parameters", nullptr);
    EXPECT_TRUE(write_file(dir + "/config.json", config.dump()).ok());
    return dir;
  };
  const auto scaling = [](const char* s, const char* l) {
    return cat(R"({"type": "longrope", "short_factor": [)", s, R"(], "long_factor": [)", l, "]}");
  };
  const char* const kOnes = "1, 1, 1, 1, 1, 1, 1, 1";
  const char* const kMany = "9, 8, 7, 6, 5, 4, 3, 2";
  const std::string both = with("both", scaling(kOnes, kMany).c_str()),
                    shorts = with("short", scaling(kOnes, kOnes).c_str()),
                    longs = with("long", scaling(kMany, kMany).c_str());
  const std::vector<std::string> each = {"abcdefghijklmnop", prompts()[3] + prompts()[2]};
  RunnerOptions options{.threads = 2, .batch = 2};
  const auto all = make(both, each, options, 16).texts;
  EXPECT_EQ(all[0], make(shorts, each, options, 16).texts[0]);
  EXPECT_EQ(all[1], make(longs, each, options, 16).texts[1]);
  EXPECT_NE(all[0], make(longs, each, options, 16).texts[0]);
  EXPECT_NE(all[1], make(shorts, each, options, 16).texts[1]);
  for (size_t i = 0; i < each.size(); ++i)
    EXPECT_EQ(all[i], make(both, {each[i]}, options, 16).texts[0]);
  // Both choices are noted, each by one of the texts asked about.
  auto g = Generator::open(both).value();
  for (const std::string& p : each) EXPECT_TRUE(g->check(p, 16, Overflow::kSlide).ok());
  ASSERT_TRUE(g->prepare(options).ok());
  ASSERT_EQ(g->notes.size(), 2u);
  EXPECT_NE(g->notes[0].find("reach 32 tokens, and 40 were"), std::string::npos) << g->notes[0];
  EXPECT_NE(g->notes[0].find("short_factor"), std::string::npos);
  EXPECT_NE(g->notes[1].find("reach 122 tokens"), std::string::npos);
  EXPECT_NE(g->notes[1].find("long_factor"), std::string::npos);
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
    auto r = Runner::create(*ModelFiles::open(directory), *config,
                            {.threads = 2,
                             .batch = static_cast<int64_t>(texts.size()),
                             .dtype = GetParam().dtype,
                             .cache_dtype = GetParam().cache_dtype});
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
                 .subspan(static_cast<size_t>(p.first), static_cast<size_t>(p.n_tokens)),
             0, schedule.find(p.id)->cached.ring});
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
                      Setting{"decoder", DType::kF32}, Setting{"llama", DType::kF32, DType::kF16},
                      Setting{"gemma2", DType::kF32, DType::kBF16},
                      Setting{"gpt2", DType::kBF16, DType::kF16}),
    [](const auto& p) {
      const std::string name = p.param.type + "_" + std::string(dtype_name(p.param.dtype));
      return p.param.cache_dtype ? cat(name, "_cache_", *p.param.cache_dtype) : name;
    });

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
