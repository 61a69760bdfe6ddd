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

}  // namespace

constinit const ModelDef gpt2_model = {"gpt2", "GPT-2: learned positions, layer norm, GELU", hidden,
                                       head, "n-heads d-ff bias dropout"};

}  // namespace tegula
