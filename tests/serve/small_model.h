// Models to make texts with, hardly trained.
#pragma once

#include <gtest/gtest.h>

#include <atomic>

#include "tegula/io/file.h"
#include "tegula/train/trainer.h"

namespace tegula {

inline constexpr int64_t kContext = 160;  // several pages, so that texts' pages interleave

// A model of each family, hardly trained: its logits are close to each other, so that a bit of
// difference has a chance to be another token.
inline std::string model_of(const std::string& type) {
  const std::string dir = ::testing::TempDir() + "small_" + type;
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

}  // namespace tegula
