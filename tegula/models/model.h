// Models as maths: each file of this folder builds one family's forward pass on any Builder.
//
// A model sees a Context: it asks for weights by name (declared on first use, with their initial
// distribution), and for attention with or without a KV cache, or for what an earlier call left. So
// one text serves training, evaluation, prefill and decoding.
#pragma once

#include <cstdint>
#include <optional>
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
  // Room of an expert in training, in shares of an even load; 0: for all. Else nothing is dropped.
  double capacity_factor = 1.25;
  double balance_loss = 0.01;  // coefficient of the experts' balance loss
  double norm_eps = 1e-5;
  double rope_theta = 10000;
  double dropout = 0;
  bool has_bias = false;
  // One table for tokens in and out. None: what files of the family usually have.
  std::optional<bool> tie_embeddings;

  // After resolve().
  bool is_tied() const { return tie_embeddings.value_or(true); }
  // Fills the zeros, and what is not there, with the family's defaults. Errors name the numbers:
  // "d_model 100 is not a multiple of n_heads 3".
  Status resolve();
};

enum class Init : uint8_t { kZeros, kOnes, kNormal };

struct WeightSpec {
  std::string name;  // as in the Hugging Face checkpoint of the family
  Type type;
  Init init = Init::kNormal;
  double stddev = 0.02;
  bool decays = false;  // weight decay applies (matrices, not norms and biases)
  std::string scope;    // where it is first used
};

// A call that goes on where an earlier one stopped: its tokens stand at position, position + 1, …
struct Decoding {
  Var position;  // i64 scalar
  Dim length;    // symbol: tokens known after this call
};

class Context {
 public:
  Context(Builder& b, const ModelConfig& config) : b(b), config(config) {}
  Builder& b;
  const ModelConfig& config;
  DType dtype = DType::kF32;           // of weights, activations and caches
  Var seed;                            // i64 scalar for dropout; invalid: no dropout
  bool is_training = false;            // experts have bounded room, and losses are added
  const Decoding* decoding = nullptr;  // null: this call's tokens are all there are
  std::vector<Var> losses;             // scalars that a model adds to its training loss

  // The weight of that name; its spec is recorded on first use.
  Var weight(const std::string& name, const Shape& shape, Init init = Init::kNormal,
             double stddev = 0.02, bool decays = true);
  const std::vector<WeightSpec>& weights() const { return specs_; }

  // x with a share p of its elements zeroed and the rest scaled by 1/(1-p).
  Var dropout(Var x);
  // Causal attention with a KV cache (decoding), GQA and dropout as configured. q[b s h d],
  // k, v[b s hk d].
  Var attend(Var q, Var k, Var v, int64_t layer);
  // Positions 0, 1, … of this call's tokens: i64 [seqlen].
  Var positions(Var tokens);
  // What `carry` of that name was given by the call before; zeros at the first position.
  Var carried(const std::string& name, const Shape& shape);
  void carry(const std::string& name, Var next);

 private:
  Var state(const std::string& name, const Shape& shape);
  Var extended(const std::string& name, Var fresh);

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
  // Those of kModelFlags that change what it computes, by spaces, beside n-layers, d-model and
  // seqlen, which all have.
  std::string_view options;
  bool is_tied = true;  // ModelConfig::tie_embeddings, if it is not said
};

// A field of the configuration that has a flag, under the flag's name without its dashes.
struct ModelFlag {
  std::string_view name;
  int64_t ModelConfig::*size = nullptr;  // one of the three
  double ModelConfig::*number = nullptr;
  bool ModelConfig::*is_on = nullptr;
};
inline constexpr ModelFlag kModelFlags[] = {
    {"n-layers", &ModelConfig::n_layers},
    {"n-heads", &ModelConfig::n_heads},
    {"n-kv-heads", &ModelConfig::n_kv_heads},
    {"head-dim", &ModelConfig::head_dim},
    {"d-model", &ModelConfig::d_model},
    {"d-ff", &ModelConfig::d_ff},
    {"n-experts", &ModelConfig::n_experts},
    {"experts-per-token", &ModelConfig::n_experts_per_token},
    {"capacity-factor", nullptr, &ModelConfig::capacity_factor},
    {"balance-loss", nullptr, &ModelConfig::balance_loss},
    {"bias", nullptr, nullptr, &ModelConfig::has_bias},
    {"dropout", nullptr, &ModelConfig::dropout},
    {"seqlen", &ModelConfig::max_seqlen}};
bool has_option(const ModelDef& model, std::string_view option);

std::span<const ModelDef* const> all_models();
Result<const ModelDef*> find_model(std::string_view name);

// Mean cross-entropy of predicting targets, and in training the model's own losses; never holds the
// logits.
Var model_loss(Context& c, const ModelDef& model, Var tokens, Var targets);
// Logits of every position, f32 [batch, seqlen, vocab_size], and of the last, [batch, vocab_size].
Var model_logits(Context& c, const ModelDef& model, Var tokens);
Var model_last_logits(Context& c, const ModelDef& model, Var tokens);
// Every weight of the model, in the order of use.
Result<std::vector<WeightSpec>> model_weights(const ModelConfig& config);
int64_t parameter_count(const std::vector<WeightSpec>& weights);

}  // namespace tegula
