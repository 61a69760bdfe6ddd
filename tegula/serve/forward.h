// Forward: a model's forward pass over whole rows of tokens, without a cache: what each next token
// costs and, if asked for, all logits.
//
// Rows are as long as each other; what a row gets depends on its own tokens alone, bit by bit, not
// on other rows nor on threads. Losses are the terms of the loss in training's forward pass, equal
// bits in one dtype and mode.
#pragma once

#include <span>
#include <vector>

#include "tegula/base/memory.h"
#include "tegula/models/checkpoint.h"
#include "tegula/passes/pass.h"
#include "tegula/runtime/session.h"

namespace tegula {

struct ForwardOptions {
  int threads = 0;  // 0: all
  int64_t rows = 1, length = 1;
  DType dtype = DType::kF32;  // of weights and activations
  Mode mode = Mode::kExact;
  bool wants_logits = false;
  // Where weights lie in blocks, products are of activations in bytes, summed exactly; else of f32.
  bool quantises_activations = false;
};

class Forward {
 public:
  // Maps the weights, checks them, and makes the plan. Errors: those of ModelFiles and
  // ModelWeights; rows longer than the context.
  static Result<std::unique_ptr<Forward>> create(std::shared_ptr<const ModelFiles> files,
                                                 const ModelConfig& config,
                                                 const ForwardOptions& options);
  // Row r before run(): the ids that it reads, and those to be predicted.
  std::span<int32_t> tokens(int64_t r) { return row(tokens_, r, options_.length); }
  std::span<int32_t> targets(int64_t r) { return row(targets_, r, options_.length); }
  Status run();
  // Row r after it: -log of the probability of each target; logits[i · vocab_size + id].
  std::span<const float> losses(int64_t r) const { return row(losses_, r, options_.length); }
  std::span<const float> logits(int64_t r) const {
    return row(logits_, r, options_.length * config_.vocab_size);
  }
  const ModelConfig& config() const { return config_; }
  ThreadPool& pool() { return rank_.pool; }
  int64_t peak_bytes() const { return rank_.memory.peak_bytes(); }

 private:
  Forward(const ModelConfig& config, const ForwardOptions& options);
  template <class T>
  static std::span<T> row(std::span<T> all, int64_t r, int64_t n) {
    return all.subspan(static_cast<size_t>(r * n), static_cast<size_t>(n));
  }
  template <class T>
  static std::span<T> row(std::vector<T>& all, int64_t r, int64_t n) {
    return row(std::span(all), r, n);
  }

  ModelConfig config_;
  ForwardOptions options_;
  Rank rank_;
  Store store_;
  std::shared_ptr<ModelWeights> weights_;  // the store borrows from it
  BlockFormats formats_;                   // of those that are computed on as they lie
  std::unique_ptr<Session> session_;
  std::vector<int32_t> tokens_, targets_;
  std::span<const float> losses_, logits_;
};

}  // namespace tegula
