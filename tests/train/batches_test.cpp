// The order of batches from a file: what it says is what a step sees.
#include "tegula/train/batches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "tegula/io/file.h"
#include "tegula/train/data.h"
#include "tegula/train/trainer.h"

namespace tegula {
namespace {

constexpr BatchShape kShape{2, 4, 20, 2, 1};

TEST(Batches, ReadsPlaces) {
  const auto order = parse_batches("# a comment\n0 15\n\n 3,\t4\r\n7 8", "f", kShape);
  ASSERT_TRUE(order.ok()) << order.error().message;
  EXPECT_EQ(order->places, (std::vector<int64_t>{0, 15, 3, 4, 7, 8}));
  EXPECT_EQ(order->n_batches(), 3);
  EXPECT_EQ(order->of(1)[1], 4);
}

TEST(Batches, RefusesWithFileAndLine) {
  const auto message = [](std::string_view text, BatchShape shape = kShape) {
    const auto order = parse_batches(text, "f", shape);
    return order.ok() ? "" : order.error().message;
  };
  const auto expect = [&](std::string_view text, std::initializer_list<const char*> words) {
    for (const char* word : words)
      EXPECT_NE(message(text).find(word), std::string::npos) << message(text) << ": " << word;
  };
  expect("0 1\n2\n", {"f:2: 1 place,", "a batch has 2", "--batch 1"});
  expect("0 1\n0 16\n", {"f:2: place 16", "20 tokens", "0 to 15"});
  expect("-1 1\n", {"f:1: place -1"});
  expect("0 1\n#\n3 x4\n", {"f:3: \"x4\" is no whole number"});
  expect("0 1.5\n", {"f:1: \"1.5\""});
  expect("0 99999999999999999999\n", {"f:1: \"99999999999999999999\""});
  expect("0 1\n", {"f has 1 batch,", "--steps 2", "at most --steps 1"});
  expect("", {"f has 0 batches"});
  EXPECT_EQ(message("0 1\n2 3\n"), "");
  BatchShape twice = kShape;
  twice.accumulate = 2;
  EXPECT_NE(message("0 1\n2 3\n4 5\n", twice).find("at most --steps 1"), std::string::npos);
}

TEST(Batches, TargetsAreTheNextTokens) {
  const std::vector<int32_t> tokens = {5, 3, 8, 9, 7, 2, 4};
  std::vector<int32_t> in(6), out(6);
  fill_rows(tokens, std::vector<int64_t>{3, 0}, 3, in.data(), out.data());
  EXPECT_EQ(in, (std::vector<int32_t>{9, 7, 2, 5, 3, 8}));
  EXPECT_EQ(out, (std::vector<int32_t>{7, 2, 4, 3, 8, 9}));
}

TEST(Batches, TheDrawnOrderInAFileGivesTheDrawnRun) {
  const std::string dir = ::testing::TempDir() + "/batches";
  (void)remove_tree(dir);
  ASSERT_TRUE(make_directories(dir).ok());
  TrainConfig c;
  c.data = dir + "/text.txt", c.tokenizer = "bytes";
  std::string text;
  for (int i = 0; i < 300; ++i) text += cat("line ", i, " of ", i * i % 997, ";\n");
  ASSERT_TRUE(write_file(c.data, text).ok());
  c.model.n_layers = 1, c.model.n_heads = 2, c.model.d_model = 16, c.model.max_seqlen = 16;
  c.batch = 3, c.accumulate = 2, c.steps = 4, c.eval_every = 0, c.threads = 1;
  // Where the drawn sequences stand, found in the text itself.
  const std::string train_text = text.substr(0, text.size() * 9 / 10);
  std::vector<int32_t> tokens(train_text.begin(), train_text.end()), in(48), out(48);
  std::string lines;
  for (int64_t b = 0; b < c.steps * c.accumulate; ++b) {
    fill_batch(tokens, c.seed, b, c.batch, 16, in.data(), out.data());
    for (int64_t r = 0; r < c.batch; ++r) {
      const auto row = in.begin() + r * 16;
      const auto at = std::search(tokens.begin(), tokens.end(), row, row + 16);
      ASSERT_NE(at, tokens.end());
      lines += cat(at - tokens.begin(), r + 1 < c.batch ? " " : "\n");
    }
  }
  ASSERT_TRUE(write_file(dir + "/order.txt", lines).ok());
  const auto losses = [](const TrainConfig& config) {
    std::vector<double> all;
    auto t = Trainer::create(config);
    EXPECT_TRUE(t.ok()) << t.error().message;
    if (!t.ok()) return all;
    (*t)->context = &all;
    (*t)->on_step = [](void* to, const StepReport& r) {
      static_cast<std::vector<double>*>(to)->push_back(r.loss);
    };
    EXPECT_TRUE((*t)->run(std::atomic<bool>{false}).ok());
    return all;
  };
  const auto drawn = losses(c);
  c.batches = dir + "/order.txt";
  EXPECT_EQ(losses(c), drawn);
  c.seed = 99;  // weights only
  EXPECT_NE(losses(c), drawn);
}

}  // namespace
}  // namespace tegula
