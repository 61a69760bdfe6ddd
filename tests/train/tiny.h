// A model small enough to train on ranks in a test, and divided by eight of them.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "tegula/train/config.h"

namespace tegula {

inline TrainConfig tiny(const char* model, const char* mode) {
  TrainConfig c;
  c.model.type = model;
  c.model.vocab_size = 61, c.model.n_layers = 2, c.model.n_heads = 4, c.model.d_model = 32;
  c.model.max_seqlen = 16, c.model.has_bias = std::string(model) == "gpt2";
  if (std::string(model) != "gpt2" && std::string(model) != "moe") c.model.n_kv_heads = 2;
  if (std::string(model) == "moe") c.model.n_experts = 4;
  c.batch = 8, c.mode = mode;
  EXPECT_TRUE(c.model.resolve().ok());
  return c;
}

}  // namespace tegula
