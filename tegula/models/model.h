// Models as maths: each file of this folder builds one family's forward pass on any Builder.
//
// A model sees a Context: it asks for weights by name (declared on first use, with their initial
// distribution), and for attention with or without a KV cache. So one text serves training,
// evaluation, prefill and decoding.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tegula/ir/builder.h"

namespace tegula {

struct ModelConfig {
  std::string type = "gpt2";  // gpt2, llama, moe, mlp, lstm
  int64_t vocab_size = 0;
  int64_t n_layers = 4;
  int64_t n_heads = 4;
  int64_t n_kv_heads = 0;  // 0: n_heads
  int64_t head_dim = 0;    // 0: d_model / n_heads
  int64_t d_model = 128;
  int64_t d_ff = 0;  // 0: 4 d_model (gpt2, mlp), 8/3 d_model rounded up to 32 (llama, moe)
  int64_t max_seqlen = 64;
  int64_t n_experts = 8;
  int64_t n_experts_per_token = 2;
  double norm_eps = 1e-5;
  double rope_theta = 10000;
  double dropout = 0;
  bool has_bias = false;
  bool tie_embeddings = true;

  // Fills the zeros with their defaults. Errors name the numbers: "d_model 100 is not a multiple of
  // n_heads 3".
  Status resolve();
};

enum class Init : uint8_t { kZeros, kOnes, kNormal };

struct WeightSpec {
  std::string name;  // as in the Hugging Face checkpoint of the family
  Type type;
  Init init = Init::kNormal;
  double stddev = 0.02;
  bool decays = false;  // weight decay applies (matrices, not norms and biases)
};

// Where attention finds keys and values of earlier tokens, when decoding.
struct KvCache {
  std::vector<Var> k, v;  // per layer: [batch, max_seqlen, n_kv_heads, head_dim]
  Var position;           // i64 scalar: tokens already in the cache
  Dim length;             // symbol: tokens in the cache after this call
};

class Context {
 public:
  Context(Builder& b, const ModelConfig& config) : b(b), config(config) {}
  Builder& b;
  const ModelConfig& config;
  DType dtype = DType::kF32;  // of the weights
  Var seed;                   // i64 scalar for dropout; invalid: no dropout
  KvCache* cache = nullptr;   // invalid: attention over this call's tokens only

  // The weight of that name; its spec is recorded on first use.
  Var weight(const std::string& name, const Shape& shape, Init init = Init::kNormal,
             double stddev = 0.02, bool decays = true);
  const std::vector<WeightSpec>& weights() const { return specs_; }

  // x with a share p of its elements zeroed and the rest scaled by 1/(1-p).
  Var dropout(Var x);
  // Causal attention with the cache, GQA and dropout as configured. q[b s h d], k, v[b s hk d].
  Var attend(Var q, Var k, Var v, int64_t layer);
  // Positions 0, 1, … of this call's tokens: i64 [seqlen].
  Var positions(Var tokens);

 private:
  std::vector<WeightSpec> specs_;
  std::vector<Var> vars_;
  int64_t next_stream_ = 0;
};

// A family: tokens i32 [batch, seqlen] -> the last hidden state [batch, seqlen, d_model], and the
// output projection's weight [vocab_size, d_model].
struct ModelDef {
  std::string_view name;
  std::string_view doc;
  Var (*hidden)(Context&, Var tokens) = nullptr;
  Var (*head)(Context&) = nullptr;
  // A loss added to the cross-entropy (expert balance); may be null.
  Var (*auxiliary_loss)(Context&) = nullptr;
};

std::span<const ModelDef* const> all_models();
Result<const ModelDef*> find_model(std::string_view name);

// Mean cross-entropy of predicting targets; never holds the logits.
Var model_loss(Context& c, const ModelDef& model, Var tokens, Var targets);
// Logits of the last position, f32 [batch, vocab_size].
Var model_last_logits(Context& c, const ModelDef& model, Var tokens);
// Every weight of the model, in the order of use.
Result<std::vector<WeightSpec>> model_weights(const ModelConfig& config);
int64_t parameter_count(const std::vector<WeightSpec>& weights);

}  // namespace tegula
