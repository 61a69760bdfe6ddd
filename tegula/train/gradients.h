// The results of a stored model on given tokens: loss, logits and the gradient of every weight, to
// compare ports of a model with each other.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tegula/ir/host_tensor.h"

namespace tegula {

struct ModelGradients {
  double loss = 0;    // mean cross-entropy of predicting each next token
  HostTensor logits;  // [rows, length - 1, vocab_size]
  std::vector<std::pair<std::string, HostTensor>> grads;  // by the names in the checkpoint
  std::string note;  // for people: LongRoPE's choice for rows of that length; "": there is none
};

// `rows` of equal length ≥ 2. f32 runs the compiled plan; f64 runs every op's reference in double
// precision, op by op: the mathematical meaning, slowly. Errors: rows that do not fit the
// model, ids outside its vocabulary; a directory that is no model.
Result<ModelGradients> model_gradients(const std::string& path,
                                       const std::vector<std::vector<int32_t>>& rows, DType dtype,
                                       int threads);

// A safetensors file of "loss", "logits" and the gradients.
Status write_gradients(const std::string& path, const ModelGradients& g);

}  // namespace tegula
