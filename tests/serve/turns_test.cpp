// Turns of a chat: what the cache holds of one is kept for the next, which has the bits of one that
// is read anew.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "tegula/serve/generator.h"
#include "tests/serve/hardly_trained.h"

namespace tegula {
namespace {

// A model of the family, with 200 tokens' context.
const std::string& trained(const std::string& family) {
  static std::map<std::string, std::string> runs;
  std::string& out = runs[family];
  if (!out.empty()) return out;
  return out = hardly_trained("turns", family, [](ModelConfig& m) { m.max_seqlen = 200; });
}

struct Turn {
  std::string text;
  std::vector<TokenScore> scores;
  GenerateStats stats;
};

std::unique_ptr<Generator> open(const std::string& family, const RunnerOptions& options = {}) {
  RunnerOptions o = options;
  o.threads = 1, o.has_lse = true;
  auto g = Generator::load(trained(family), o);
  EXPECT_TRUE(g.ok()) << g.error().message;
  return std::move(*g);
}

Turn take_turn(Generator& g, const std::vector<int32_t>& ids, int64_t n, bool is_turn = true) {
  Turn turn;
  const auto add = [](void* to, std::string_view piece) { static_cast<Turn*>(to)->text += piece; };
  TextRequest r{"", n, {.temperature = 2, .seed = 7}, add, &turn};
  r.ids = ids, r.is_turn = is_turn, r.scores = &turn.scores, r.n_best = 3;
  const Status st = g.generate(r, turn.stats, {.overflow = Overflow::kStop});
  EXPECT_TRUE(st.ok()) << st.error().message;
  return turn;
}

void expect_equal(const Turn& a, const Turn& b) {
  EXPECT_EQ(a.text, b.text);
  ASSERT_EQ(a.scores.size(), b.scores.size());
  for (size_t i = 0; i < a.scores.size(); ++i) {
    EXPECT_EQ(a.scores[i].token, b.scores[i].token) << i;
    EXPECT_EQ(a.scores[i].log_probability, b.scores[i].log_probability) << i;
    EXPECT_EQ(a.scores[i].best, b.scores[i].best) << i;
  }
}

// Ids that go on from the turn before, differ somewhere in it, or begin anew.
TEST(Turns, HaveTheBitsOfAReadingAnew) {
  std::mt19937 random(1);
  for (const RunnerOptions& o : {RunnerOptions{}, RunnerOptions{.chunk = 5}}) {
    auto g = open("llama", o), anew = open("llama", o);
    std::vector<int32_t> ids;
    int64_t kept = 0;
    for (int turn = 0; turn < 40; ++turn) {
      if (ids.size() > 120 || random() % 4 == 0) ids.resize(random() % (ids.size() / 2 + 1));
      for (size_t n = 1 + random() % 30; n > 0; --n)
        ids.push_back(static_cast<int32_t>('a' + random() % 26));
      const auto n_new = static_cast<int64_t>(1 + random() % 12);
      const Turn mine = take_turn(*g, ids, n_new), theirs = take_turn(*anew, ids, n_new, false);
      expect_equal(mine, theirs);
      EXPECT_EQ(theirs.stats.kept_tokens, 0);
      EXPECT_LT(mine.stats.kept_tokens, static_cast<int64_t>(ids.size()));
      kept += mine.stats.kept_tokens;
      for (const TokenScore& s : mine.scores) ids.push_back(s.token);
    }
    EXPECT_GT(kept, 1000);
  }
}

TEST(Turns, KeepAllThatIsEqualAndNotMore) {
  auto g = open("gpt2");
  std::vector<int32_t> ids = {'a', 'b', 'c', 'd'};
  Turn turn = take_turn(*g, ids, 3);
  EXPECT_EQ(turn.stats.kept_tokens, 0);
  for (const TokenScore& s : turn.scores) ids.push_back(s.token);
  ids.push_back('x');
  EXPECT_EQ(take_turn(*g, ids, 3).stats.kept_tokens, 6);  // the last one was drawn, not read
  EXPECT_EQ(take_turn(*g, ids, 3).stats.kept_tokens, 7);  // its last token is read again
  ids[2] = 'z';
  EXPECT_EQ(take_turn(*g, ids, 3).stats.kept_tokens, 2);
  // Another text takes the pages; so does forgetting.
  take_turn(*g, ids, 3, false);
  EXPECT_EQ(take_turn(*g, ids, 3).stats.kept_tokens, 0);
  g->forget();
  EXPECT_EQ(take_turn(*g, ids, 3).stats.kept_tokens, 0);
  EXPECT_EQ(take_turn(*g, {'q'}, 3).stats.kept_tokens, 0);
}

// A state is that of all that was read: it goes on where a text goes on, and is of no use else.
TEST(Turns, AStateGoesOnOrBeginsAnew) {
  auto g = open("lstm"), anew = open("lstm");
  std::vector<int32_t> ids = {'a', 'b', 'c', 'd'};
  const Turn first = take_turn(*g, ids, 3);
  for (const TokenScore& s : first.scores) ids.push_back(s.token);
  ids.push_back('x');
  const Turn second = take_turn(*g, ids, 3);
  EXPECT_EQ(second.stats.kept_tokens, 6);
  expect_equal(second, take_turn(*anew, ids, 3, false));
  ids[1] = 'z';
  const Turn third = take_turn(*g, ids, 3);
  EXPECT_EQ(third.stats.kept_tokens, 0);
  expect_equal(third, take_turn(*anew, ids, 3, false));
}

// The cache is as large as the longest text that is asked for, and no bit depends on that.
TEST(CacheSize, ChangesNoBits) {
  const std::vector<int32_t> ids(70, 'k');
  const Turn whole = take_turn(*open("llama"), ids, 9);
  for (const int64_t longest : {79, 100, 1000}) {
    RunnerOptions o{.longest = longest};
    auto g = open("llama", o);
    EXPECT_EQ(g->cache_bytes(o).value(), 2 * 2 * (longest == 1000 ? 256 : 128) * 2 * 8 * 4);
    expect_equal(take_turn(*g, ids, 9), whole);
  }
}

// Queries, sums and results stay f32: logits are off by what rounding keys and values once costs.
TEST(CacheDtype, RoundsKeysAndValuesAlone) {
  const std::vector<int32_t> ids(150, 'k');
  const auto logits = [&](const RunnerOptions& options) {
    auto g = open("llama", options);
    EXPECT_TRUE(g->feed(ids).ok());
    EXPECT_TRUE(g->feed(std::vector<int32_t>{'a'}).ok());
    return std::vector<float>(g->logits().begin(), g->logits().end());
  };
  const std::vector<float> whole = logits({});
  for (const DType t : {DType::kBF16, DType::kF16}) {
    const std::vector<float> half = logits({.cache_dtype = t});
    double error = 0, size = 0;
    for (size_t i = 0; i < whole.size(); ++i)
      error += std::pow(half[i] - whole[i], 2), size += std::pow(whole[i], 2);
    EXPECT_GT(error, 0);
    EXPECT_LT(error / size, std::pow(epsilon(t), 2) / 4) << dtype_name(t);
  }
}

// Keys and values in another dtype: half the bytes, nearly the same log-probabilities.
TEST(CacheDtype, TakesFewerBytesAndHardlyChangesAnything) {
  const std::vector<int32_t> ids(150, 'k');
  const Turn whole = take_turn(*open("llama"), ids, 1);
  auto config = open("llama")->config();
  const int64_t bytes = cache_bytes(config, {}).value();
  EXPECT_EQ(bytes,
            2 * 2 * 256 * 2 * 8 * 4);  // k and v, layers, rows of whole pages, heads, head_dim
  for (const DType t : {DType::kBF16, DType::kF16}) {
    EXPECT_EQ(cache_bytes(config, {.cache_dtype = t}).value(), bytes / 2);
    const Turn half = take_turn(*open("llama", {.cache_dtype = t}), ids, 1);
    const float a = whole.scores[0].best[0].second, b = half.scores[0].best[0].second;
    EXPECT_NE(a, b);
    EXPECT_NEAR(a, b, t == DType::kBF16 ? 0.05 : 0.005);
  }
}

}  // namespace
}  // namespace tegula
