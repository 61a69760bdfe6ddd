// A model that is hardly trained, so that every token counts: two layers, 16 wide.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <string>

#include "tegula/io/file.h"
#include "tegula/train/trainer.h"

namespace tegula {

// Trains it in an empty folder of that name; the run's directory. `set_up` may change settings of
// the model, as its context.
template <class F>
std::string hardly_trained(const std::string& name, const std::string& family, F&& set_up) {
  const std::string dir = ::testing::TempDir() + name + "_" + family;
  std::filesystem::remove_all(dir);  // of a run before
  EXPECT_TRUE(make_directories(dir).ok());
  TrainConfig c;
  c.data = dir + "/text.txt", c.out = dir + "/out";
  std::string text;
  for (int i = 0; i < 1400; ++i) text += static_cast<char>('a' + i * i % 23);
  EXPECT_TRUE(write_file(c.data, text).ok());
  c.model.type = family;
  c.model.n_layers = 2, c.model.n_heads = 2, c.model.d_model = 16;
  set_up(c.model);
  c.tokenizer = "bytes", c.seqlen = 32;
  c.batch = 2, c.steps = 4, c.warmup = 1, c.eval_every = 0, c.threads = 1;
  auto t = Trainer::create(c);
  EXPECT_TRUE(t.ok()) << t.error().to_string();
  EXPECT_TRUE((*t)->run(std::atomic<bool>{false}).ok());
  return c.out;
}

}  // namespace tegula
