// The contents of a model's files, without reading a weight.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tegula/models/config.h"
#include "tegula/models/model_files.h"

namespace tegula {

struct ModelInfo {
  struct Format {
    std::string name;  // "q4_1", "f32"
    int64_t n_tensors = 0, n_values = 0, n_bytes = 0;
  };
  std::string path, form;  // "GGUF 3", "directory"
  ModelConfig config;
  int64_t n_parameters = 0;     // of the model, each once
  std::vector<Format> formats;  // most bytes first
  int64_t weight_bytes = 0;     // as stored
  // Bytes of keys and values of one token, in f32; 0: the model keeps none. Layers with a window
  // keep what it sees alone: `window` tokens of the widest; 0: none has one.
  int64_t cache_bytes = 0, window = 0;
  std::string tokenizer;  // "bpe:N"; what is wrong with it, or that there is none
  int64_t n_tokens = 0;   // 0: it cannot be used
  std::vector<int64_t> end_of_text;
  int64_t template_bytes = 0;  // 0: none
};

Result<ModelInfo> model_info(const ModelFiles& files);

}  // namespace tegula
