#include "tegula/serve/generator.h"

#include <gtest/gtest.h>

#include <atomic>

#include "tegula/base/half.h"
#include "tegula/io/file.h"
#include "tegula/train/trainer.h"

namespace tegula {
namespace {

// A model of eight tokens' context, trained until it knows "abcabc…" by heart.
std::string trained() {
  static const std::string out = [] {
    const std::string dir = ::testing::TempDir() + "generator";
    (void)remove_tree(dir);
    EXPECT_TRUE(make_directories(dir).ok());
    TrainConfig c;
    c.data = dir + "/text.txt", c.out = dir + "/out";
    std::string text;
    for (int i = 0; i < 300; ++i) text += "abc";
    EXPECT_TRUE(write_file(c.data, text).ok());
    c.model.n_layers = 1, c.model.n_heads = 2, c.model.d_model = 16, c.model.max_seqlen = 8;
    c.batch = 4, c.steps = 60, c.lr = 1e-2, c.min_lr = 1e-3, c.warmup = 4, c.eval_every = 0;
    c.threads = 1;
    auto t = Trainer::create(c);
    EXPECT_TRUE(t.ok() && (*t)->run(std::atomic<bool>{false}).ok());
    return c.out;
  }();
  return out;
}

struct Written {
  std::string text;
  GenerateStats stats;
  Status status;
};

Written generate(const std::string& prompt, int64_t n, const SamplerConfig& sampler,
                 DType dtype = DType::kF32) {
  Written w;
  auto g = Generator::load(trained(), {.threads = 1, .dtype = dtype});
  EXPECT_TRUE(g.ok()) << g.error().to_string();
  const auto add = [](void* to, std::string_view piece) {
    static_cast<Written*>(to)->text += piece;
  };
  w.status = (*g)->generate({prompt, n, sampler, add, &w}, w.stats);
  return w;
}

// Past the context its second half is read again, and a prompt longer than it counts by its end.
TEST(Generator, GoesOnPastItsContext) {
  const SamplerConfig greedy{.temperature = 0};
  Written w = generate("ab", 31, greedy);
  EXPECT_EQ(w.text, "cabcabcabcabcabcabcabcabcabcabc");
  EXPECT_EQ(w.stats.prompt_tokens, 2);
  EXPECT_EQ(w.stats.new_tokens, 31);
  w = generate("abcabcabcabcabcabcabca", 4, greedy);
  EXPECT_EQ(w.text, "bcab");
  EXPECT_EQ(w.stats.prompt_tokens, 22);
  EXPECT_EQ(generate("b", 0, greedy).text, "");
}

// Half the weights' bytes, the same text; logits stay f32, so that none are equal by rounding.
TEST(Generator, HalfPrecisionKnowsTheTextToo) {
  for (DType t : {DType::kBF16, DType::kF16}) {
    EXPECT_EQ(generate("ab", 20, {.temperature = 0}, t).text, "cabcabcabcabcabcabca");
    auto g = Generator::load(trained(), {.threads = 1, .dtype = t});
    ASSERT_TRUE(g.ok() && (*g)->feed(std::vector<int32_t>{0, 1}).ok());
    int rounded = 0;
    for (float l : (*g)->logits()) rounded += static_cast<float>(bf16(l)) == l;
    EXPECT_LT(rounded, static_cast<int>((*g)->logits().size()));
  }
}

TEST(Generator, SeedDecidesTheText) {
  const SamplerConfig hot{.temperature = 30, .seed = 1};
  const std::string a = generate("a", 40, hot).text;
  EXPECT_EQ(a, generate("a", 40, hot).text);
  EXPECT_NE(a, generate("a", 40, {.temperature = 30, .seed = 2}).text);
}

TEST(Generator, NamesWhatIsWrong) {
  const Written empty = generate("", 4, {}), unknown = generate("xyz", 4, {});
  ASSERT_FALSE(empty.status.ok());
  EXPECT_NE(empty.status.error().message.find("prompt is empty"), std::string::npos);
  ASSERT_FALSE(unknown.status.ok());
  EXPECT_NE(unknown.status.error().message.find("x"), std::string::npos);
  auto none = Generator::load(::testing::TempDir() + "nowhere", {.threads = 1});
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.error().message.find("nowhere"), std::string::npos);
}

}  // namespace
}  // namespace tegula
