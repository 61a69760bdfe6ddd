// Pooling: how the vectors of a text's tokens become one of the text, and what a directory of
// sentence-transformers says of it (modules.json, 1_Pooling/config.json, sentence_bert_config.json,
// config_sentence_transformers.json).
//
//   mean: (Σ_t x_t) / n     cls: x_0     last: x_{n−1}     max: max_t x_t, by element
// then, if normalised, x / max(|x|, 1e-12). Sums are in f64, in the order of the tokens.
// Errors: kUnsupported, by name, for other modules (Dense, …), two poolings at once, and texts that
// are changed before they are read; kInvalidArgument for files that contradict the model.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tegula/models/model_files.h"

namespace tegula {

enum class PoolBy : uint8_t { kMean, kCls, kLast, kMax };

struct Pooling {
  PoolBy by = PoolBy::kMean;
  bool is_normalised = false;
  int64_t most_tokens = 0;  // of a text; 0: the context
  std::string prompt;       // in front of each text
  // rows [n, d] -> d numbers.
  std::vector<float> apply(std::span<const float> rows, int64_t d) const;
};

// As the files say; without any the mean, as it is. `width`: of the model's vectors.
Result<Pooling> read_pooling(const ModelFiles& files, int64_t width);
// "mean", "cls", "last", "max".
Result<PoolBy> parse_pooling(std::string_view name);

}  // namespace tegula
