#include "tegula/train/gradients.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "tegula/io/file.h"
#include "tegula/io/safetensors.h"
#include "tegula/ir/reference.h"
#include "tegula/models/model.h"
#include "tegula/train/trainer.h"

namespace tegula {
namespace {

// The directory of a model after next to no step; vocabulary: 256.
std::string untrained(const std::string& family) {
  const std::string dir = cat(::testing::TempDir(), "gradients_", family);
  (void)remove_tree(dir);
  EXPECT_TRUE(make_directories(dir).ok());
  TrainConfig c;
  c.data = dir + "/text.txt", c.out = dir + "/out", c.tokenizer = "bytes";
  EXPECT_TRUE(write_file(c.data, std::string(500, 'a')).ok());
  c.model.type = family;
  c.model.n_layers = 1, c.model.n_heads = 2, c.model.d_model = 8, c.model.max_seqlen = 6;
  c.model.n_experts = 3;
  c.batch = 1, c.steps = 1, c.lr = c.min_lr = 1e-9, c.threads = 1;
  auto t = Trainer::create(c);
  EXPECT_TRUE(t.ok() && (*t)->run(std::atomic<bool>{false}).ok());
  return c.out;
}

TEST(Gradients, HaveTheNamesAndShapesOfTheCheckpoint) {
  for (const ModelDef* model : all_models()) {
    const std::string family(model->name), dir = untrained(family);
    const bool is_masked = model->sees_ahead;
    std::vector<std::vector<int32_t>> rows = {{1, 2, 3, 4}, {255, 0, 9, 9}}, targets;
    if (is_masked) rows = {{1, 2, 3}, {255, 0, 9}}, targets = {{-100, 7, 8}, {0, -100, -100}};
    const auto g = model_gradients(dir, rows, targets, DType::kF32, 1);
    ASSERT_TRUE(g.ok()) << g.error().to_string();
    EXPECT_NEAR(g->loss, std::log(256), 0.1) << family;  // it has learned nothing yet
    EXPECT_EQ(g->logits.type.shape, Shape({2, 3, is_masked ? 257 : 256}));  // with [MASK]
    const auto file = SafetensorsFile::open(dir + "/latest/model.safetensors");
    ASSERT_TRUE(file.ok());
    for (const auto& [name, grad] : g->grads) {
      const TensorRef* w = file->find(name);
      ASSERT_NE(w, nullptr) << family << " " << name;
      EXPECT_TRUE(std::ranges::equal(shape_of(*w), shape_of(grad.ref())));
    }
    ASSERT_TRUE(write_gradients(dir + "/grad.safetensors", *g).ok());
    EXPECT_EQ(SafetensorsFile::open(dir + "/grad.safetensors")->tensors().size(),
              g->grads.size() + 2);
  }
}

TEST(Gradients, RefuseWhatDoesNotFitTheModel) {
  const std::string dir = untrained("mlp");
  auto message = [&](const std::vector<std::vector<int32_t>>& rows) {
    const auto g = model_gradients(dir, rows, {}, DType::kF32, 1);
    return g.ok() ? "" : g.error().message;
  };
  EXPECT_NE(message({}).find("rows of 0 tokens"), std::string::npos);
  EXPECT_NE(message({{1, 2, 3, 4, 5, 6, 7, 8}}).find("at most 7"), std::string::npos);
  EXPECT_NE(message({{1, 2}, {1, 2, 3}}).find("equally long"), std::string::npos);
  EXPECT_NE(message({{1, 256}}).find("token 256"), std::string::npos);
}

// Next tokens said as targets are the next tokens.
TEST(Gradients, TakeTargets) {
  const std::string dir = untrained("gpt2");
  const auto next = model_gradients(dir, {{1, 2, 3, 4}, {5, 6, 7, 8}}, {}, DType::kF32, 1);
  const auto said =
      model_gradients(dir, {{1, 2, 3}, {5, 6, 7}}, {{2, 3, 4}, {6, 7, 8}}, DType::kF32, 1);
  ASSERT_TRUE(next.ok() && said.ok());
  EXPECT_EQ(next->loss, said->loss);
  const auto message = [&](const std::vector<std::vector<int32_t>>& targets) {
    const auto g = model_gradients(dir, {{1, 2, 3}}, targets, DType::kF32, 1);
    return g.ok() ? "" : g.error().message;
  };
  EXPECT_NE(message({{1, 2}}).find("row 1 has 2 targets"), std::string::npos);
  EXPECT_NE(message({{1, 2, 3}, {1, 2, 3}}).find("row 2 has 3 targets"), std::string::npos);
  EXPECT_NE(message({{1, -100, 256}}).find("256 is neither"), std::string::npos);
  EXPECT_NE(message({{1, -1, 2}}).find("-1 is neither"), std::string::npos);
}

}  // namespace
}  // namespace tegula
