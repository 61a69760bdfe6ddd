// The results of a stored model on given tokens: loss, logits and the gradient of every weight, to
// compare ports of a model with each other.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tegula/ir/host_tensor.h"

namespace tegula {

struct ModelGradients {
  double loss = 0;                                        // mean cross-entropy of the targets
  HostTensor logits;                                      // [rows, length, vocab_size]
  std::vector<std::pair<std::string, HostTensor>> grads;  // by the names in the checkpoint
  std::string note;  // for people: LongRoPE's choice for rows of that length; "": there is none
};

// `rows` of equal length, and as many targets, of which -100 counts in no loss. Without targets
// each row's last token is one alone: each token is to predict the next one, in rows of a token
// less, at least one; a model that sees ahead needs targets. f32 runs the compiled plan; f64 runs
// every op's reference in double precision, op by op: the mathematical meaning, slowly. Errors:
// rows that do not fit the model, ids outside its vocabulary; a directory that is no model.
Result<ModelGradients> model_gradients(const std::string& path,
                                       const std::vector<std::vector<int32_t>>& rows,
                                       const std::vector<std::vector<int32_t>>& targets,
                                       DType dtype, int threads);

// A safetensors file of "loss", "logits" and the gradients.
Status write_gradients(const std::string& path, const ModelGradients& g);

}  // namespace tegula
