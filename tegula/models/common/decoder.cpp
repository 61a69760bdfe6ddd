#include "tegula/models/decoder.h"

#include <cmath>

#include "tegula/ops/attention.h"
#include "tegula/ops/embedding.h"
#include "tegula/ops/math.h"
#include "tegula/ops/norm.h"
#include "tegula/ops/rope.h"

namespace tegula {

namespace {

constexpr std::string_view kSliding = "sliding_attention", kFull = "full_attention";

Var rms(Context& c, Var x, const std::string& name) {
  return rms_norm(x, c.weight(name + ".weight", Shape{x.dim(-1)}, Init::kOnes, 0, false),
                  c.config.norm_eps);
}

Var silu_of(Var x) { return silu(x); }

// [b s d] -> [b s d], causal.
Var self_attention(Context& c, const Decoder& d, Var x, const std::string& at, int64_t layer) {
  const ModelConfig& m = c.config;
  const Dim batch = x.dim(0), seqlen = x.dim(1);
  auto heads = [&](const char* name, int64_t n) {
    const Var y = decoder_linear(c, x, at + name, n * m.head_dim, 0.02, d.has_qkv_bias);
    return reshape(y, Shape{batch, seqlen, n, m.head_dim});
  };
  const Var p = d.add_positions ? Var() : c.positions(x);
  RopeScaling scaling;
  if (const double factor = m.number(setting::kRopeFactor); factor > 0)
    scaling = {factor, m.number(setting::kRopeLow), m.number(setting::kRopeHigh),
               m.number(setting::kRopeOriginal)};
  const auto turned = [&](Var v) {
    return p.valid() ? rope(v, p, m.rope_theta, false, scaling) : v;
  };
  const Var q = turned(heads("q_proj", m.n_heads));
  const Var k = turned(heads("k_proj", m.n_kv_heads));
  const Var v = heads("v_proj", m.n_kv_heads);
  AttentionOptions o;
  o.scale = d.softmax_scale, o.softcap = d.softcap;
  if (const int64_t window = d.window ? d.window(m, layer) : 0; window > 0)
    o.window_left = window - 1;
  const Var merged =
      reshape(c.attend(q, k, v, layer, o), Shape{batch, seqlen, m.n_heads * m.head_dim});
  return decoder_linear(c, merged, at + "o_proj", m.d_model, residual_stddev(m), d.has_bias);
}

Var table(Context& c) {
  return c.weight("model.embed_tokens.weight", Shape{c.config.vocab_size, c.config.d_model});
}

Var embed(Context& c, const Decoder& d, Var tokens) {
  const Scope scope(c.b, "embedding");
  Var x = embedding(table(c), tokens);
  if (d.embedding_scale != 1) x = x * d.embedding_scale;
  if (d.add_positions) x = d.add_positions(c, tokens, x);
  return c.dropout(x);
}

// x and f of it, joined by the norms of that place.
template <class F>
Var residual(Context& c, const Decoder& d, Var x, const std::string& before,
             const std::string& after, F&& f) {
  const Var in = d.norms == NormPlace::kPost ? x : d.norm(c, x, before);
  Var y = f(in);
  if (d.norms == NormPlace::kBoth) y = d.norm(c, y, after);
  const Var sum = x + c.dropout(y);
  return d.norms == NormPlace::kPost ? d.norm(c, sum, after) : sum;
}

}  // namespace

Var decoder_linear(Context& c, Var x, const std::string& name, int64_t n_out, double stddev,
                   bool has_bias) {
  const Var w = c.weight(name + ".weight", Shape{n_out, x.dim(-1)}, Init::kNormal, stddev);
  const Var y = dot(x.rank() == 2 ? "t k, n k -> t n" : "b s k, n k -> b s n", x, w);
  if (!has_bias) return y;
  return y + c.weight(name + ".bias", Shape{n_out}, Init::kZeros, 0, false);
}

double residual_stddev(const ModelConfig& config) {
  return 0.02 / std::sqrt(2.0 * static_cast<double>(config.n_layers));
}

Var gated_ffn(Context& c, const Decoder& d, Var x, const std::string& at) {
  const ModelConfig& m = c.config;
  const Var gate =
      d.activation(decoder_linear(c, x, at + "mlp.gate_proj", m.d_ff, 0.02, d.has_bias));
  const Var up = decoder_linear(c, x, at + "mlp.up_proj", m.d_ff, 0.02, d.has_bias);
  return decoder_linear(c, gate * up, at + "mlp.down_proj", m.d_model, residual_stddev(m),
                        d.has_bias);
}

Var dense_ffn(Context& c, const Decoder& d, Var x, const std::string& at) {
  const ModelConfig& m = c.config;
  const Var h = d.activation(decoder_linear(c, x, at + "mlp.up_proj", m.d_ff, 0.02, d.has_bias));
  return decoder_linear(c, h, at + "mlp.down_proj", m.d_model, residual_stddev(m), d.has_bias);
}

Decoder llama_decoder() { return {rms, gated_ffn, silu_of}; }

Var decoder_hidden(Context& c, Var tokens, const Decoder& d) {
  Var x = embed(c, d, tokens);
  // transformers names the norms after the place where they stand.
  const bool has_both = d.norms == NormPlace::kBoth;
  const char* before_ffn = has_both ? "pre_feedforward_layernorm" : "post_attention_layernorm";
  for (int64_t i = 0; i < c.config.n_layers; ++i) {
    const Scope layer(c.b, cat("layers.", i));
    const std::string at = cat("model.layers.", i, ".");
    {
      const Scope scope(c.b, "attn");
      x = residual(c, d, x, at + "input_layernorm", at + "post_attention_layernorm",
                   [&](Var in) { return self_attention(c, d, in, at + "self_attn.", i); });
    }
    const Scope scope(c.b, "mlp");
    x = residual(c, d, x, at + before_ffn, at + "post_feedforward_layernorm",
                 [&](Var in) { return d.ffn(c, d, in, at); });
  }
  if (d.norms == NormPlace::kPost) return x;  // it is normed already
  const Scope scope(c.b, "head");
  return d.norm(c, x, "model.norm");
}

Var decoder_head(Context& c) {
  if (c.config.is_tied()) return table(c);
  return c.weight("lm_head.weight", Shape{c.config.vocab_size, c.config.d_model});
}

Status resolve_decoder(ModelConfig& m) {
  if (m.n_kv_heads == 0) m.n_kv_heads = m.n_heads;
  if (m.head_dim == 0 && m.d_model % m.n_heads != 0)
    return invalid_argument(cat("d_model ", m.d_model, " is not a multiple of n_heads ", m.n_heads,
                                ": change one of them or give head_dim"));
  if (m.head_dim == 0) m.head_dim = m.d_model / m.n_heads;
  if (m.n_heads % m.n_kv_heads != 0)
    return invalid_argument(
        cat("n_heads ", m.n_heads, " is not a multiple of n_kv_heads ", m.n_kv_heads));
  if (m.d_ff == 0) m.d_ff = (m.d_model * 8 / 3 + 31) / 32 * 32;
  return {};
}

Status resolve_rotary(ModelConfig& m) {
  TEGULA_TRY(resolve_decoder(m));
  if (m.head_dim % 2 != 0)
    return invalid_argument(cat("head_dim ", m.head_dim, " is odd: rotary embedding needs pairs"));
  return {};
}

Status resolve_layer_types(ModelConfig& m, bool (*is_sliding)(const ModelConfig&, int64_t)) {
  std::vector<std::string> types = m.texts(setting::kLayerTypes);
  if (types.empty())
    for (int64_t i = 0; i < m.n_layers; ++i)
      types.emplace_back(is_sliding(m, i) ? kSliding : kFull);
  if (static_cast<int64_t>(types.size()) != m.n_layers)
    return invalid_argument(cat("layer_types names ", types.size(), " layers, and n_layers is ",
                                m.n_layers, ": one of them must change"));
  m.set(setting::kLayerTypes, std::move(types));
  return {};
}

int64_t window_by_type(const ModelConfig& m, int64_t layer) {
  const bool is_sliding = m.texts(setting::kLayerTypes)[static_cast<size_t>(layer)] == kSliding;
  return is_sliding ? m.size(setting::kWindow) : 0;
}

}  // namespace tegula
