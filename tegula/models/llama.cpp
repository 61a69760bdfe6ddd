// Llama: RMS norm, rotary positions, grouped-query attention, SwiGLU. [Touvron et al. 2023]
#include "tegula/models/llama.h"
#include "tegula/models/table.h"

#include "tegula/ops/embedding.h"
#include "tegula/ops/math.h"
#include "tegula/ops/norm.h"
#include "tegula/ops/rope.h"

namespace tegula {

// Checkpoints hold [out, in].
Var llama_linear(Context& c, Var x, const std::string& name, int64_t n_out) {
  const Var w = c.weight(name + ".weight", Shape{n_out, x.dim(-1)});
  return dot(x.rank() == 2 ? "t k, n k -> t n" : "b s k, n k -> b s n", x, w);
}

Var llama_norm(Context& c, Var x, const std::string& name) {
  return rms_norm(x, c.weight(name + ".weight", Shape{x.dim(-1)}, Init::kOnes, 0, false),
                  c.config.norm_eps);
}

Var llama_attention(Context& c, Var x, const std::string& at, int64_t layer) {
  const ModelConfig& m = c.config;
  const Dim batch = x.dim(0), seqlen = x.dim(1);
  auto heads = [&](const char* name, int64_t n) {
    return reshape(llama_linear(c, x, at + name, n * m.head_dim),
                   Shape{batch, seqlen, n, m.head_dim});
  };
  const Var p = c.positions(x);
  const Var q = rope(heads("q_proj", m.n_heads), p, m.rope_theta);
  const Var k = rope(heads("k_proj", m.n_kv_heads), p, m.rope_theta);
  const Var v = heads("v_proj", m.n_kv_heads);
  const Var o = reshape(c.attend(q, k, v, layer), Shape{batch, seqlen, m.n_heads * m.head_dim});
  return llama_linear(c, o, at + "o_proj", m.d_model);
}

Var llama_embed(Context& c, Var tokens) {
  return c.dropout(embedding(llama_table(c), tokens));
}

Var llama_table(Context& c) {
  return c.weight("model.embed_tokens.weight", Shape{c.config.vocab_size, c.config.d_model});
}

Var llama_head(Context& c) {
  if (c.config.tie_embeddings) return llama_table(c);
  return c.weight("lm_head.weight", Shape{c.config.vocab_size, c.config.d_model});
}

namespace {

Var swiglu(Context& c, Var x, const std::string& at) {
  const Var gate = silu(llama_linear(c, x, at + "gate_proj", c.config.d_ff));
  const Var up = llama_linear(c, x, at + "up_proj", c.config.d_ff);
  return llama_linear(c, gate * up, at + "down_proj", c.config.d_model);
}

Var hidden(Context& c, Var tokens) {
  Var x = llama_embed(c, tokens);
  for (int64_t i = 0; i < c.config.n_layers; ++i) {
    const std::string at = cat("model.layers.", i, ".");
    const Var a = llama_norm(c, x, at + "input_layernorm");
    x = x + c.dropout(llama_attention(c, a, at + "self_attn.", i));
    const Var h = llama_norm(c, x, at + "post_attention_layernorm");
    x = x + c.dropout(swiglu(c, h, at + "mlp."));
  }
  return llama_norm(c, x, "model.norm");
}

}  // namespace

constinit const ModelDef llama_model = {"llama", "Llama: RMS norm, RoPE, GQA, SwiGLU", hidden,
                                        llama_head};

}  // namespace tegula
