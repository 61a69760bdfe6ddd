// Layers with a window keep what it sees and what a chunk of a prompt adds, in a ring of pages: the
// bits are those of a cache that keeps all, and of no cache.
#include <gtest/gtest.h>

#include <map>

#include "tegula/models/decoder.h"
#include "tegula/serve/generator.h"
#include "tests/serve/hardly_trained.h"

namespace tegula {
namespace {

constexpr int64_t kContext = 1000, kWindow = 70;

// Both layers of mistral have the window, and the first one of gemma3.
const std::string& trained(const std::string& family) {
  static std::map<std::string, std::string> runs;
  std::string& out = runs[family];
  if (!out.empty()) return out;
  return out = hardly_trained("windows", family, [&](ModelConfig& m) {
           m.max_seqlen = kContext;
           m.set(setting::kWindow, kWindow);
           if (family == "gemma3")
             m.set(setting::kLayerTypes,
                   std::vector<std::string>{"sliding_attention", "full_attention"});
         });
}

std::unique_ptr<Generator> open(const std::string& family, const RunnerOptions& options) {
  RunnerOptions o = options;
  o.has_lse = true;
  auto g = Generator::load(trained(family), o);
  EXPECT_TRUE(g.ok()) << g.error().to_string();
  return std::move(*g);
}

struct Made {
  std::vector<int32_t> tokens;
  std::vector<float> numbers;
  GenerateStats stats;
  bool operator==(const Made& other) const {
    return tokens == other.tokens && numbers == other.numbers;
  }
};

std::vector<int32_t> prompt(size_t n, size_t from = 0) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < n; ++i)
    ids.push_back(static_cast<int32_t>('a' + (from + i * i / 3 + i) % 26));
  return ids;
}

// Continues the prompts together, by `n` tokens each.
std::vector<Made> make(Generator& g, const std::vector<std::vector<int32_t>>& prompts, int64_t n,
                       bool is_turn = false) {
  std::vector<Made> all(prompts.size());
  std::vector<std::vector<TokenScore>> scores(prompts.size());
  std::vector<TextRequest> requests;
  for (size_t i = 0; i < prompts.size(); ++i) {
    TextRequest r{"", n, {.temperature = 2, .seed = 7}, [](void*, std::string_view) {}, nullptr};
    r.ids = prompts[i], r.is_turn = is_turn, r.scores = &scores[i], r.n_best = 3;
    requests.push_back(r);
  }
  std::vector<GenerateStats> stats(prompts.size());
  BatchStats of_all;
  const Status st = g.generate(requests, stats, of_all, {.overflow = Overflow::kSlide});
  EXPECT_TRUE(st.ok()) << st.error().to_string();
  for (size_t i = 0; i < prompts.size(); ++i) {
    all[i].stats = stats[i];
    for (const TokenScore& s : scores[i]) {
      all[i].tokens.push_back(s.token);
      for (const auto& [id, x] : s.best) all[i].numbers.push_back(x);
    }
  }
  return all;
}

class Windows : public ::testing::TestWithParam<const char*> {};

int64_t bytes_of(const std::string& family, const RunnerOptions& o) {
  return open(family, {.chunk = 1})->cache_bytes(o).value();
}
// Keys and values of so many rows of either layer.
int64_t expected(const std::string& family, int64_t first, int64_t second, int64_t size = 4) {
  const ModelConfig c = open(family, {.chunk = 1})->config();
  return 2 * (first + second) * c.n_kv_heads * c.head_dim * size;
}

TEST_P(Windows, TakeBytesByLayer) {
  const std::string family = GetParam();
  const bool both = family == "mistral";
  const auto is = [&](const RunnerOptions& o, int64_t ring, int64_t all, int64_t size = 4) {
    EXPECT_EQ(bytes_of(family, o), expected(family, ring, both ? ring : all, size));
  };
  is({.chunk = 1000}, 1024, 1024);                              // no less than all
  is({.chunk = 40}, 128, 1024);                                 // 70 + 39 tokens
  is({.chunk = 59}, 128, 1024), is({.chunk = 60}, 192, 1024);   // 70 + 58 are two pages
  is({}, 640, 1024);                                            // in chunks of 512
  is({.batch = 3, .chunk = 40}, 3 * 128, 3 * 1024);             // a ring each
  is({.chunk = 40, .longest = 100}, 128, 128);                  // short texts
  is({.chunk = 40, .cache_dtype = DType::kF16}, 128, 1024, 2);  // and in halves
  is({.chunk = 40, .caches = false}, 1024, 1024);
}

TEST_P(Windows, HaveTheBitsOfACacheThatKeepsAll) {
  const std::vector<std::vector<int32_t>> prompts = {prompt(300), prompt(5, 3), prompt(130, 9)};
  for (const auto dtype : {std::optional<DType>(), std::optional(DType::kF16)}) {
    const RunnerOptions whole{.threads = 2, .chunk = kContext, .cache_dtype = dtype};
    std::vector<Made> want;
    for (const auto& p : prompts) want.push_back(make(*open(GetParam(), whole), {p}, 150)[0]);
    for (const int64_t batch : {1, 2, 3})
      for (const int64_t chunk : {0, 1, 40, 59, 64, 130}) {
        RunnerOptions o = whole;
        o.batch = batch, o.chunk = chunk, o.threads = batch;
        EXPECT_TRUE(make(*open(GetParam(), o), prompts, 150) == want)
            << "batch " << batch << ", chunk " << chunk;
      }
  }
  RunnerOptions none{.threads = 2, .caches = false};
  const Made anew = make(*open(GetParam(), none), {prompts[2]}, 40)[0];
  Made cached = make(*open(GetParam(), {.threads = 2, .chunk = 40}), {prompts[2]}, 40)[0];
  EXPECT_TRUE(cached == anew);
}

// A context that is full is read again from its middle.
TEST_P(Windows, Slide) {
  const std::vector<std::vector<int32_t>> prompts = {prompt(950), prompt(980, 2)};
  const RunnerOptions whole{.threads = 2, .batch = 2, .chunk = kContext};
  RunnerOptions ring = whole;
  ring.chunk = 30;
  EXPECT_TRUE(make(*open(GetParam(), ring), prompts, 80) ==
              make(*open(GetParam(), whole), prompts, 80));
}

// If a turn ends in another way, some of its tokens may be gone from the ring, and all is read
// again then; bits are those of a reading anew in either case.
TEST_P(Windows, TurnsKeepWhatIsStillThere) {
  const RunnerOptions o{.chunk = 40};  // a ring of 128 tokens
  auto g = open(GetParam(), o), anew = open(GetParam(), o);
  const auto turn = [&](const std::vector<int32_t>& ids) {
    const Made mine = make(*g, {ids}, 10, true)[0], theirs = make(*anew, {ids}, 10)[0];
    EXPECT_TRUE(mine == theirs);
    return mine.stats.kept_tokens;
  };
  std::vector<int32_t> ids = prompt(300);
  EXPECT_EQ(turn(ids), 0);  // and 9 of the 10 are read
  ids[252] = 'z';
  EXPECT_EQ(turn(ids), 252);  // of tokens up to 309 those from 181 on are there, 252 sees from 183
  ids[249] = 'z';
  EXPECT_EQ(turn(ids), 0);  // from 180
  ids.push_back('y');
  EXPECT_EQ(turn(ids), 300);
  ids.resize(280);
  EXPECT_EQ(turn(ids), 279);
  ids.resize(240);
  // Though the turn before ended at 289, the ring has had 310 tokens.
  EXPECT_EQ(turn(ids), 0);
  ids.resize(60);
  EXPECT_EQ(turn(ids), 0);
  ids[10] = 'q';
  EXPECT_EQ(turn(ids), 10);  // nothing has been overwritten
}

INSTANTIATE_TEST_SUITE_P(Families, Windows, ::testing::Values("mistral", "gemma3"));

TEST(PageRing, IsAsLongAsATextNeedsAndNotLonger) {
  PagePool pool(40, 64, {.window = 70, .pages = 2, .count = 4});
  CachedText a, b, c;
  ASSERT_TRUE(pool.grow(a, 1000).ok() && pool.grow(b, 1).ok());
  EXPECT_EQ(a.ring, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(b.ring, (std::vector<int32_t>{2}));
  const Status st = pool.grow(c, 65);
  ASSERT_FALSE(st.ok());
  EXPECT_NE(
      st.error().message.find("2 more pages of layers with a window, of 64 tokens, and of 4 1"),
      std::string::npos)
      << st.error().message;
  EXPECT_TRUE(c.pages.empty() && c.ring.empty());
  a.n_tokens = 1000;
  EXPECT_TRUE(pool.holds(a, 1000) && pool.holds(a, 941));
  EXPECT_FALSE(pool.holds(a, 940));
  pool.shrink(a, 950);
  EXPECT_FALSE(pool.holds(a, 940));
  pool.give_back(a);
  EXPECT_TRUE(pool.grow(c, 65).ok() && pool.holds(c, 0));
}

}  // namespace
}  // namespace tegula
