// Embedder: vectors of texts, by an encoder (BERT, MiniLM) or a decoder.
//
// A text's tokens go through the model, the last hidden states are pooled (pooling.h). Texts are
// padded to 64, 128, 256, … tokens; those of one length go together. One has the bits that it has
// alone. A text longer than the model
// sees loses its end, but for the ids that the tokenizer puts behind it.
// Errors: texts without a token; those of ModelFiles, ModelWeights and Pooling.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tegula/base/memory.h"
#include "tegula/models/checkpoint.h"
#include "tegula/runtime/session.h"
#include "tegula/serve/pooling.h"

namespace tegula {

struct EmbedOptions {
  int threads = 0;
  int64_t batch = 8;  // texts at once, at most
  DType dtype = DType::kF32;
};

class Embedder {
 public:
  // The configuration, tokenizer and pooling, which may be changed; then the weights.
  static Result<std::unique_ptr<Embedder>> open(const std::string& path);
  Status prepare(const EmbedOptions& options);
  Pooling pooling;

  struct Embedding {
    std::vector<float> vector;
    int64_t tokens = 0, left_out = 0;  // of the text; behind what the model sees
  };
  Result<std::vector<Embedding>> embed(std::span<const std::string> texts);
  int64_t width() const { return config_.d_model; }
  std::vector<std::string> notes;  // for people

 private:
  struct Text;
  Embedder() = default;
  int64_t most_tokens() const;
  int64_t row_of(size_t n_tokens) const;
  Result<FuncId> build(Module& module, int64_t length) const;
  Result<Session*> session_of(int64_t length);
  Result<std::vector<Text>> tokens_of(std::span<const std::string> texts,
                                      std::span<Embedding> out) const;
  Status run(std::span<const Text> texts, std::span<Embedding> out);
  bool sees_ahead() const;

  std::shared_ptr<const ModelFiles> files_;
  ModelConfig config_;
  EmbedOptions options_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<Rank> rank_;
  std::unique_ptr<Store> store_;
  std::shared_ptr<ModelWeights> weights_;
  BlockFormats formats_;
  std::map<int64_t, std::unique_ptr<Session>> sessions_;  // by the length of their rows
  std::vector<int32_t> tokens_, lengths_;
};

}  // namespace tegula
