// config.json: what a model directory says about its model, as Hugging Face's transformers has it.
//
// model_type gpt2 (GPT2LMHeadModel), llama (LlamaForCausalLM), mixtral (MixtralForCausalLM), and
// tegula-mlp, tegula-lstm, which transformers does not know. One struct holds them all; keys with
// no field here are kept in `extra` and written again. Absent keys take transformers' defaults.
// GPT-2 there always has biases: a model without writes "bias": false, and zeros as its biases.
// Errors: kInvalidArgument for wrong types and impossible sizes, naming file and key;
// kUnsupported for other model types and for options that would change the mathematics
// (scaled RoPE, sliding windows, …); kIo.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tegula/base/dtype.h"
#include "tegula/io/json.h"

namespace tegula {

struct HfConfig {
  std::string model_type;
  int64_t vocab_size = 0;
  int64_t n_layers = 0;
  int64_t n_heads = 0;     // of queries; 0 for mlp and lstm
  int64_t n_kv_heads = 0;  // = n_heads for gpt2
  int64_t head_dim = 0;    // = d_model / n_heads for gpt2
  int64_t d_model = 0;
  int64_t d_ff = 0;  // of one expert for mixtral
  int64_t max_seqlen = 0;
  double norm_eps = 1e-5;
  double rope_theta = 10000;  // llama and mixtral
  std::string activation;     // transformers' name: gelu_new (tanh), gelu (erf), silu, relu
  bool tie_embeddings = false;
  bool bias = false;
  double dropout = 0;
  int64_t n_experts = 0;  // mixtral
  int64_t n_experts_per_token = 0;
  double balance_loss = 0;
  DType dtype = DType::kF32;  // of the weights in the file
  Json::Object extra;
  friend bool operator==(const HfConfig&, const HfConfig&) = default;
};

Result<HfConfig> parse_hf_config(std::string_view text, const std::string& path);
// Reads DIRECTORY/config.json.
Result<HfConfig> read_hf_config(const std::string& directory);
// The text of a config.json; `config` must pass check().
std::string format_hf_config(const HfConfig& config);
// Whether the sizes fit together: "d_model 130 is not n_heads 4 × head_dim 32 …".
Status check_hf_config(const HfConfig& config);

}  // namespace tegula
