// GPT-2: pre-norm transformer, learned positions, GELU, tied head. [Radford et al. 2019]
#include <cmath>

#include "tegula/models/table.h"
#include "tegula/ops/embedding.h"
#include "tegula/ops/math.h"
#include "tegula/ops/norm.h"

namespace tegula {

namespace {

Var linear(Context& c, Var x, const std::string& name, int64_t n_out, double stddev = 0.02) {
  const Var w = c.weight(name + ".weight", Shape{x.dim(-1), n_out}, Init::kNormal, stddev);
  Var y = matmul(x, w);
  if (c.config.has_bias) y = y + c.weight(name + ".bias", Shape{n_out}, Init::kZeros, 0, false);
  return y;
}

Var norm(Context& c, Var x, const std::string& name) {
  const Var w = c.weight(name + ".weight", Shape{x.dim(-1)}, Init::kOnes, 0, false);
  const Var b = c.config.has_bias
                    ? c.weight(name + ".bias", Shape{x.dim(-1)}, Init::kZeros, 0, false)
                    : Var();
  return layer_norm(x, w, b, c.config.norm_eps);
}

// [b s d] -> [b s d]
Var self_attention(Context& c, Var x, const std::string& at, int64_t layer, double stddev) {
  const Scope scope(c.b, "attn");
  const ModelConfig& m = c.config;
  const Dim batch = x.dim(0), seqlen = x.dim(1);
  // [b s d] -> q, k, v [b s h d]
  const Var qkv = linear(c, norm(c, x, at + "ln_1"), at + "attn.c_attn", 3 * m.d_model);
  auto head = [&](int64_t i) {
    return reshape(slice(qkv, 2, i * m.d_model, m.d_model),
                   Shape{batch, seqlen, m.n_heads, m.head_dim});
  };
  const Var o = c.attend(head(0), head(1), head(2), layer);
  const Var merged = reshape(o, Shape{batch, seqlen, m.d_model});
  return c.dropout(linear(c, merged, at + "attn.c_proj", m.d_model, stddev));
}

Var feed_forward(Context& c, Var x, const std::string& at, double stddev) {
  const Scope scope(c.b, "mlp");
  const Var h = gelu(linear(c, norm(c, x, at + "ln_2"), at + "mlp.c_fc", c.config.d_ff));
  return c.dropout(linear(c, h, at + "mlp.c_proj", c.config.d_model, stddev));
}

Var block(Context& c, Var x, int64_t layer) {
  const ModelConfig& m = c.config;
  const Scope scope(c.b, cat("layers.", layer));
  const std::string at = cat("transformer.h.", layer, ".");
  const double residual_stddev = 0.02 / std::sqrt(2.0 * static_cast<double>(m.n_layers));
  x = x + self_attention(c, x, at, layer, residual_stddev);
  return x + feed_forward(c, x, at, residual_stddev);
}

Var wte(Context& c) {
  return c.weight("transformer.wte.weight", Shape{c.config.vocab_size, c.config.d_model});
}

Var embed(Context& c, Var tokens) {
  const Scope scope(c.b, "embedding");
  const Var wpe = c.weight("transformer.wpe.weight", Shape{c.config.max_seqlen, c.config.d_model});
  return c.dropout(embedding(wte(c), tokens) + embedding(wpe, c.positions(tokens)));
}

Var hidden(Context& c, Var tokens) {
  Var x = embed(c, tokens);
  for (int64_t i = 0; i < c.config.n_layers; ++i) x = block(c, x, i);
  const Scope scope(c.b, "head");
  return norm(c, x, "transformer.ln_f");
}

Var head(Context& c) {
  if (c.config.is_tied()) return wte(c);
  return c.weight("lm_head.weight", Shape{c.config.vocab_size, c.config.d_model});
}

Status resolve(ModelConfig& m) {
  if (m.n_kv_heads == 0) m.n_kv_heads = m.n_heads;
  if (m.head_dim == 0 && m.d_model % m.n_heads != 0)
    return invalid_argument(cat("d_model ", m.d_model, " is not a multiple of n_heads ", m.n_heads,
                                ": change one of them"));
  if (m.head_dim == 0) m.head_dim = m.d_model / m.n_heads;
  if (m.n_kv_heads != m.n_heads || m.head_dim * m.n_heads != m.d_model)
    return invalid_argument(
        "gpt2 has n_kv_heads = n_heads and head_dim = d_model / n_heads: "
        "use --model llama for grouped heads");
  if (m.d_ff == 0) m.d_ff = 4 * m.d_model;
  return {};
}

using namespace setting;  // NOLINT(google-build-using-namespace)
constexpr Field kFields[] = {{&kVocabSize, "vocab_size", 50257},
                             {&kContext, "n_positions", 1024, {}, "max_position_embeddings"},
                             {&kWidth, "n_embd", 768, {}, "hidden_size"},
                             {&kLayers, "n_layer", 12, {}, "num_hidden_layers"},
                             {&kHeads, "n_head", 12, {}, "num_attention_heads"},
                             {&kFfWidth, "n_inner", 0},
                             {&kNormEps, "layer_norm_epsilon", 1e-5, 1e-5},
                             {&kDropout, "resid_pdrop embd_pdrop attn_pdrop", 0.1},
                             {&kTied, "tie_word_embeddings", true, true},
                             {&kBias, "bias", true}};
constexpr FixedKey kFixed[] = {{"activation_function", R"("gelu_new"|"gelu_pytorch_tanh")", true},
                               {"scale_attn_weights", "true"},
                               {"scale_attn_by_inverse_layer_idx", "false"},
                               {"add_cross_attention", "false"}};
// A rank's heads of q, k and v lie in one matrix, so it takes three pieces of it.
constexpr Cut kCuts[] = {{"attn.c_attn.weight", 1, &kHeads, 3},
                         {"attn.c_attn.bias", 0, &kHeads, 3},
                         {"attn.c_proj.weight", 0, &kHeads},
                         {"mlp.c_fc.weight", 1},
                         {"mlp.c_fc.bias", 0},
                         {"mlp.c_proj.weight", 0},
                         {"wte.weight", 0},
                         {"lm_head.weight", 0}};

}  // namespace

constinit const ModelDef gpt2_model = {
    .name = "gpt2",
    .doc = "GPT-2: learned positions, layer norm, GELU",
    .hidden = hidden,
    .head = head,
    .fields = kFields,
    .resolve = resolve,
    .hf_type = "gpt2",
    .hf_class = "GPT2LMHeadModel",
    .fixed = kFixed,
    .free =
        "n_ctx n_special predict_special_tokens reorder_and_upcast_attn summary_type "
        "summary_use_proj summary_activation summary_proj_to_labels summary_first_dropout "
        "summary_last_dropout",
    .names = {.table = "transformer.wte.weight",
              .prefix = "transformer.",
              .ignored = ".attn.bias .masked_bias .rotary_emb.inv_freq",
              .biased = ".h. .ln_f."},
    .cuts = kCuts,
};

}  // namespace tegula
