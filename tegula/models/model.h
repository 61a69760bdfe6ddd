// Models as maths: each file of this folder builds one family's forward pass on any Builder.
//
// A model sees a Context: it asks for weights by name (declared on first use, with their initial
// distribution), and for attention with or without a KV cache, or for what an earlier call left. So
// one text serves training, evaluation, prefill and decoding.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "tegula/ir/builder.h"
#include "tegula/models/config.h"

namespace tegula {

struct AttentionOptions;
struct Decoder;
enum class BlockFormat : uint8_t;

// Formats of the weights that lie in blocks (base/block_format.h), by name.
using BlockFormats = std::unordered_map<std::string, BlockFormat>;

enum class Init : uint8_t { kZeros, kOnes, kNormal };

struct WeightSpec {
  std::string name;  // as in the Hugging Face checkpoint of the family
  Type type;
  Init init = Init::kNormal;
  double stddev = 0.02;
  bool decays = false;  // weight decay applies (matrices, not norms and biases)
  std::string scope;    // where it is first used
};

// Keys and values of all tokens so far, in pages that texts take as they grow.
struct CachePages {
  int64_t count = 1, size = 64;
  std::optional<DType> dtype = {};  // of keys and values; none: the activations'
  bool rounds_queries = false;      // to that dtype, for kernels that take one alone
};

// A call that goes on where earlier ones stopped: one next token of each of n texts, [n, 1], or
// some, packed into one row [1, t]. With a state that models carry on, the row is one text's.
struct Decoding {
  CachePages pages;
  Var positions;  // i64, as tokens: of each token, in its text
  Var slots;      // i32, of all tokens in a row: which of the cache's rows keeps its key and value
  Var seqlens_k;  // i32 [n]: tokens known after this call
  Var block_table;   // i32 [n, pages of a text]; the first also says where the text's state lies
  Var cu_seqlens_q;  // i32 [n + 1]: where each text's tokens begin; invalid: one of each
  Var last;          // i32 [n]: which token is a text's last; invalid with cu_seqlens_q
  // For layers with a window: a text's last pages alone, as slots and block_table; invalid: they
  // keep all of it.
  CachePages ring;
  Var ring_slots, ring_table;
  Var is_long;  // i32, as tokens: of a text past short_context() (rotary.h); invalid: none asks
};

class Context {
 public:
  Context(Builder& b, const ModelConfig& config) : b(b), config(config) {}
  Builder& b;
  const ModelConfig& config;
  DType dtype = DType::kF32;              // of weights, activations, caches unless they say another
  const BlockFormats* formats = nullptr;  // of weights that lie in blocks; null: none does
  Var seed;                               // i64 scalar for dropout; invalid: no dropout
  bool is_training = false;               // experts have bounded room, and losses are added
  const Decoding* decoding = nullptr;     // null: this call's tokens are all there are
  std::vector<int64_t> order;             // runs of tokens' positions; none: 0, 1, …
  std::vector<Var> losses;                // scalars that a model adds to its training loss
  // i32 [batch], of a model that sees ahead: tokens of each row, whose length is a multiple of
  // kRowPage; invalid: all.
  Var lengths;
  static constexpr int64_t kRowPage = 64;

  // The weight of that name; its spec is recorded on first use.
  Var weight(const std::string& name, const Shape& shape, Init init = Init::kNormal,
             double stddev = 0.02, bool decays = true);
  const std::vector<WeightSpec>& weights() const { return specs_; }

  // x with a share p of its elements zeroed and the rest scaled by 1/(1-p).
  Var dropout(Var x);
  // Attention with a KV cache (decoding), GQA and dropout as configured; causal, unless options say
  // otherwise. q[b s h d], k, v[b s hk d]. The options are the family's: a scale, a window, a cap.
  Var attend(Var q, Var k, Var v, int64_t layer);
  Var attend(Var q, Var k, Var v, int64_t layer, AttentionOptions options);
  // Positions of this call's tokens, i64: 0, 1, … [seqlen], or of each token [batch, seqlen].
  Var positions(Var tokens);
  // The value that `carry` of that name was given by the call before, [batch, …]; zeros at the
  // first position. Models that use it say has_state.
  Var carried(const std::string& name, const Shape& shape);
  void carry(const std::string& name, Var next);

 private:
  Var state(const std::string& name, const Shape& shape);
  void keep(const std::string& name, Var next);
  Var state_rows() const;
  Var appended(const std::string& name, Var fresh, const CachePages& pages, Var slots);
  Var attend_in_pages(Var q, Var k, Var v, int64_t layer, AttentionOptions options);

  std::vector<WeightSpec> specs_;
  std::vector<Var> vars_;
  std::unordered_map<std::string, size_t> places_;   // of a name in both
  std::vector<std::pair<std::string, Var>> states_;  // of all texts, as they were
  int64_t next_stream_ = 0;
  Var positions_;  // of tokens in that order
};

// How the files of a family name and keep its weights.
struct TensorNames {
  std::string_view table = "model.embed_tokens.weight";
  std::string_view head = "lm_head.weight";
  std::string_view other_head = {};  // as some files call it
  // Other endings of names, by spaces, as older files have them:
  // "LayerNorm.weight=LayerNorm.gamma".
  std::string_view aliases = {};
  // Weights whose names begin so may be missing, all of them: a file may lack this head.
  std::string_view optional = {};
  std::string_view prefix = {};  // of all names; some exporters leave it out
  // Endings, by spaces, of tensors that say nothing of their own: masks and angles.
  std::string_view ignored = ".rotary_emb.inv_freq";
  // A weight [n, …] whose name has this part is n tensors in the file: "….experts.3.w1.weight".
  std::string_view stacked = {};
  // Files always have biases beside the weights whose names have one of these parts, by spaces:
  // those of a model without are zeros.
  std::string_view biased = {};
};

// How the weights whose names end so may be cut over ranks.
struct Cut {
  std::string_view name;
  int dim = 0;
  const Setting* units = nullptr;  // whole ones stay together: heads, experts; none: rows
  int parts = 1;                   // of the dim, each cut alike: q, k and v of a fused projection
  const Setting* first = nullptr;  // units of the first part, where it has others: q's heads
};

// A family: its settings, its names, and a builder: tokens i32 [batch, seqlen] -> the last hidden
// state [batch, seqlen, d_model], and the output projection's weight [vocab_size, d_model].
struct ModelDef {
  std::string_view name;
  std::string_view doc;
  Var (*hidden)(Context&, Var tokens) = nullptr;
  Var (*head)(Context&) = nullptr;
  // Between the two, [..., d_model] -> [..., d_model], and a bias of logits [vocab_size]; null:
  // none.
  Var (*before_head)(Context&, Var hidden) = nullptr;
  Var (*head_bias)(Context&) = nullptr;
  // What it is composed of, where `hidden` is decoder_hidden (models/decoder.h).
  Decoder (*decoder)(const ModelConfig&) = nullptr;
  std::span<const Field> fields;
  // Fills in what follows from other settings, and checks them together; null: nothing does. It
  // finds what Field::initial gives.
  Status (*resolve)(ModelConfig&) = nullptr;
  std::string_view hf_type;   // model_type of config.json
  std::string_view hf_class;  // empty: transformers has none
  // AutoTokenizer of transformers 5 takes a class of its own for the type, whatever
  // tokenizer_config.json names.
  bool hf_has_tokenizer = false;
  std::span<const FixedKey> fixed;
  std::string_view free;  // keys of config.json, by spaces, that change no logits
  TensorNames names;
  std::span<const Cut> cuts;
  bool has_state = false;  // carries one from call to call: a row of tokens is one text's
  // Each token sees those behind it, too: it predicts tokens that are masked (train/masking.h), not
  // the next one, and makes vectors of texts (serve/embed.h). Decoder::sees_ahead says so to the
  // layers.
  bool sees_ahead = false;
  // Why it generates in f32 alone; empty: it does not.
  std::string_view f32_only;
};

std::span<const ModelDef* const> all_models();
// Error: it sees ahead, and `what` ("generate") needs a model that predicts next tokens.
Status check_predicts(const ModelDef& model, std::string_view what);
Result<const ModelDef*> find_model(std::string_view name);

// Mean cross-entropy of predicting targets, and in training the model's own losses.
Var model_loss(Context& c, const ModelDef& model, Var tokens, Var targets);
// The same of a hidden state that is there, without the model's own losses.
Var hidden_loss(Context& c, const ModelDef& model, Var hidden, Var targets);
// The terms of that mean, shaped as targets: lse - logits[target], f32 of f32 (and narrower)
// states.
// From logits, if weights lie in blocks: they are products with the head as it lies.
Var hidden_losses(Context& c, const ModelDef& model, Var hidden, Var targets);
// Logits of a hidden state [..., d_model], f32.
Var hidden_logits(Context& c, const ModelDef& model, Var hidden);
// Logits of every position, f32 [batch, seqlen, vocab_size], and of each text's last,
// [n, vocab_size].
Var model_logits(Context& c, const ModelDef& model, Var tokens);
Var model_last_logits(Context& c, const ModelDef& model, Var tokens);
// Every weight of the model, in the order of use.
Result<std::vector<WeightSpec>> model_weights(const ModelConfig& config);
int64_t parameter_count(const std::vector<WeightSpec>& weights);

// How much of a dim each of a cut's parts takes, but for the first one.
int64_t part_extent(const ModelConfig& config, const Cut& cut, int64_t whole);

}  // namespace tegula
