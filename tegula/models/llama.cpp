// Llama: RMS norm, rotary positions, grouped-query attention, SwiGLU. [Touvron et al. 2023]
#include "tegula/models/llama.h"

#include <cmath>

#include "tegula/models/table.h"
#include "tegula/ops/embedding.h"
#include "tegula/ops/math.h"
#include "tegula/ops/norm.h"
#include "tegula/ops/rope.h"

namespace tegula {

Var llama_linear(Context& c, Var x, const std::string& name, int64_t n_out, double stddev,
                 bool has_bias) {
  const Var w = c.weight(name + ".weight", Shape{n_out, x.dim(-1)}, Init::kNormal, stddev);
  const Var y = dot(x.rank() == 2 ? "t k, n k -> t n" : "b s k, n k -> b s n", x, w);
  if (!has_bias) return y;
  return y + c.weight(name + ".bias", Shape{n_out}, Init::kZeros, 0, false);
}

double residual_stddev(const ModelConfig& config) {
  return 0.02 / std::sqrt(2.0 * static_cast<double>(config.n_layers));
}

namespace {

Var norm(Context& c, Var x, const std::string& name) {
  return rms_norm(x, c.weight(name + ".weight", Shape{x.dim(-1)}, Init::kOnes, 0, false),
                  c.config.norm_eps);
}

// [b s d] -> [b s d], causal.
Var self_attention(Context& c, Var x, const std::string& at, int64_t layer) {
  const ModelConfig& m = c.config;
  const Dim batch = x.dim(0), seqlen = x.dim(1);
  auto heads = [&](const char* name, int64_t n) {
    const Var y = llama_linear(c, x, at + name, n * m.head_dim, 0.02, m.has_bias);
    return reshape(y, Shape{batch, seqlen, n, m.head_dim});
  };
  const Var p = c.positions(x);
  const Var q = rope(heads("q_proj", m.n_heads), p, m.rope_theta);
  const Var k = rope(heads("k_proj", m.n_kv_heads), p, m.rope_theta);
  const Var v = heads("v_proj", m.n_kv_heads);
  const Var o = reshape(c.attend(q, k, v, layer), Shape{batch, seqlen, m.n_heads * m.head_dim});
  return llama_linear(c, o, at + "o_proj", m.d_model, residual_stddev(m), m.has_bias);
}

Var swiglu(Context& c, Var x, const std::string& at) {
  const ModelConfig& m = c.config;
  const Var gate = silu(llama_linear(c, x, at + "mlp.gate_proj", m.d_ff, 0.02, m.has_bias));
  const Var up = llama_linear(c, x, at + "mlp.up_proj", m.d_ff, 0.02, m.has_bias);
  return llama_linear(c, gate * up, at + "mlp.down_proj", m.d_model, residual_stddev(m),
                      m.has_bias);
}

Var table(Context& c) {
  return c.weight("model.embed_tokens.weight", Shape{c.config.vocab_size, c.config.d_model});
}

Var embed(Context& c, Var tokens) {
  const Scope scope(c.b, "embedding");
  return c.dropout(embedding(table(c), tokens));
}

Var hidden(Context& c, Var tokens) { return llama_decoder(c, tokens, swiglu); }

}  // namespace

Var llama_decoder(Context& c, Var tokens, Var (*ffn)(Context&, Var x, const std::string& at)) {
  Var x = embed(c, tokens);
  for (int64_t i = 0; i < c.config.n_layers; ++i) {
    const Scope layer(c.b, cat("layers.", i));
    const std::string at = cat("model.layers.", i, ".");
    {
      const Scope scope(c.b, "attn");
      const Var a = norm(c, x, at + "input_layernorm");
      x = x + c.dropout(self_attention(c, a, at + "self_attn.", i));
    }
    const Scope scope(c.b, "mlp");
    x = x + c.dropout(ffn(c, norm(c, x, at + "post_attention_layernorm"), at));
  }
  const Scope scope(c.b, "head");
  return norm(c, x, "model.norm");
}

Var llama_head(Context& c) {
  if (c.config.is_tied()) return table(c);
  return c.weight("lm_head.weight", Shape{c.config.vocab_size, c.config.d_model});
}

constinit const ModelDef llama_model = {
    .name = "llama",
    .doc = "Llama: RMS norm, rotary positions, GQA, SwiGLU",
    .hidden = hidden,
    .head = llama_head,
    .options = "n-heads n-kv-heads head-dim d-ff bias dropout",
    .is_tied = false,
};

}  // namespace tegula
