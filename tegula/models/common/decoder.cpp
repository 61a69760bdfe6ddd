#include "tegula/models/decoder.h"

#include <algorithm>
#include <cmath>

#include "tegula/models/common/experts.h"
#include "tegula/models/common/names.h"
#include "tegula/ops/attention.h"
#include "tegula/ops/embedding.h"
#include "tegula/ops/math.h"
#include "tegula/ops/norm.h"
#include "tegula/ops/rope.h"

namespace tegula {

namespace {

constexpr std::string_view kSliding = "sliding_attention", kFull = "full_attention";

Var normed(Context& c, const Decoder& d, Var x, const std::string& name) {
  const Shape n = {x.dim(-1)};
  const double eps = c.config.norm_eps;
  const bool is_offset = d.norm == NormKind::kRmsPlusOne;
  const Var w = c.weight(name + ".weight", n, is_offset ? Init::kZeros : Init::kOnes, 0, false);
  if (d.norm == NormKind::kRms) return rms_norm(x, w, eps);
  if (d.norm == NormKind::kLayer)
    return layer_norm(
        x, w, d.has_norm_bias ? c.weight(name + ".bias", n, Init::kZeros, 0, false) : Var(), eps);
  // In f32 whatever x is: a w of bf16 beside 1 would lose its digits.
  const DType sums = x.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
  return cast(rms_norm(cast(x, sums), cast(w, sums) + 1.0, eps), x.dtype());
}

struct Heads {
  Var q, k, v;  // [b s h d]
};

// All of q, then k, then v; or head by head.
Heads split(const ModelConfig& m, const Decoder& d, Var qkv) {
  const Dim batch = qkv.dim(0), seqlen = qkv.dim(1);
  const int64_t size = m.head_dim;
  if (d.fused_qkv == FusedQkv::kByHead) {
    const Var heads = reshape(qkv, Shape{batch, seqlen, m.n_heads, 3 * size});
    return {slice(heads, 3, 0, size), slice(heads, 3, size, size), slice(heads, 3, 2 * size, size)};
  }
  int64_t at = 0;
  const auto next = [&](int64_t n) {
    const Var part = slice(qkv, 2, at, n * size);
    at += n * size;
    return reshape(part, Shape{batch, seqlen, n, size});
  };
  const Var q = next(m.n_heads), k = next(m.n_kv_heads);
  return {q, k, next(m.n_kv_heads)};
}

Heads project(Context& c, const Decoder& d, Var x, const std::string& at) {
  const ModelConfig& m = c.config;
  if (d.fused_qkv != FusedQkv::kNone) {
    const int64_t n = (m.n_heads + 2 * m.n_kv_heads) * m.head_dim;
    return split(m, d, decoder_linear(c, x, cat(at, d.names.qkv), n, 0.02, d.has_qkv_bias));
  }
  const auto heads = [&](std::string_view name, const char* norm, int64_t n) {
    Var y = decoder_linear(c, x, cat(at, name), n * m.head_dim, 0.02, d.has_qkv_bias);
    if (norm != nullptr && d.qk_norm == QkNorm::kWidth) y = normed(c, d, y, at + norm);
    y = reshape(y, Shape{x.dim(0), x.dim(1), n, m.head_dim});
    return norm != nullptr && d.qk_norm == QkNorm::kHead ? normed(c, d, y, at + norm) : y;
  };
  const Var q = heads(d.names.q, "q_norm", m.n_heads);
  const Var k = heads(d.names.k, "k_norm", m.n_kv_heads);
  return {q, k, heads(d.names.v, nullptr, m.n_kv_heads)};
}

// The first elements of each head, turned; the others as they are.
Var turned(Var x, Var positions, const Rotary& r) {
  const int64_t size = x.dim(3).bound();
  const Var first = r.dims < size ? slice(x, 3, 0, r.dims) : x;
  Var y = rope(first, positions, r.theta, false, r.divisors);
  if (r.scale != 1) y = y * r.scale;
  if (r.dims == size) return y;
  const Var parts[] = {y, slice(x, 3, r.dims, size - r.dims)};
  return concat(parts, 3);
}

// By the angles of the layer; where LongRoPE has two lists, by those of each token's text.
Var turned(Context& c, const Decoder& d, Var x, Var positions, int64_t layer, int64_t longest) {
  const auto by = [&](int64_t length) {
    const Rotary r = d.rotary(c.config, layer, length);
    return r.theta > 0 ? turned(x, positions, r) : x;
  };
  const Var is_long = c.decoding ? c.decoding->is_long : Var();
  if (!is_long.valid()) return by(longest);
  return select(gt(unsqueeze(unsqueeze(is_long, -1), -1), 0.0), by(c.config.max_seqlen), by(1));
}

// [b s d] -> [b s d].
Var self_attention(Context& c, const Decoder& d, Var x, const std::string& at, int64_t layer,
                   int64_t longest) {
  const ModelConfig& m = c.config;
  const Var p = d.add_positions ? Var() : c.positions(x);
  auto [q, k, v] = project(c, d, x, at);
  if (p.valid()) q = turned(c, d, q, p, layer, longest), k = turned(c, d, k, p, layer, longest);
  AttentionOptions o;
  o.is_causal = !d.sees_ahead;
  o.scale = d.softmax_scale, o.softcap = d.softcap;
  if (const int64_t window = d.window ? d.window(m, layer) : 0; window > 0)
    o.window_left = window - 1;
  const Var merged =
      reshape(c.attend(q, k, v, layer, o), Shape{x.dim(0), x.dim(1), m.n_heads * m.head_dim});
  return decoder_linear(c, merged, cat(at, d.names.out), m.d_model, residual_stddev(m),
                        d.has_out_bias);
}

Var feed_forward(Context& c, const Decoder& d, Var x, const std::string& at) {
  const int64_t n = d.has_experts ? d.experts.dense_ff : c.config.d_ff;
  const auto act = [&](Var v) { return d.activation ? d.activation(v) : silu(v); };
  const auto in = [&](std::string_view name, int64_t width) {
    return decoder_linear(c, x, cat(at, name), width, 0.02, d.has_ffn_bias);
  };
  Var h;
  if (d.has_fused_gate) {
    const Var both = in("gate_up_proj", 2 * n);
    h = act(slice(both, 2, 0, n)) * slice(both, 2, n, n);
  } else if (d.is_gated) {
    const Var gate = act(in("gate_proj", n));
    h = gate * in(d.names.up, n);
  } else {
    h = act(in(d.names.up, n));
  }
  return decoder_linear(c, h, cat(at, d.names.down), c.config.d_model, residual_stddev(c.config),
                        d.has_ffn_bias);
}

Var table(Context& c) {
  return c.weight(std::string(names_of(c.config).table),
                  Shape{c.config.vocab_size, c.config.d_model});
}

Var embed(Context& c, const Decoder& d, Var tokens) {
  const Scope scope(c.b, "embedding");
  Var x = embedding(table(c), tokens);
  if (d.embedding_scale != 1) x = x * d.embedding_scale;
  if (d.add_positions) x = d.add_positions(c, tokens, x);
  return c.dropout(x);
}

class Block {
 public:
  Block(Context& c, const Decoder& d, int64_t layer, int64_t longest)
      : c_(c),
        d_(d),
        layer_(layer),
        longest_(longest),
        at_(cat(d.names.stem, d.names.layers, layer, ".")) {}

  Var apply(Var x) {
    const Scope layer(c_.b, cat("layers.", layer_));
    const LayerNames& at = d_.names;
    if (d_.is_parallel) {
      const Var y = c_.dropout(in_scope("attn", [&] { return attention(norm(x, at.input_norm)); }));
      const Var z = c_.dropout(in_scope("mlp", [&] { return ffn(norm(x, at.attention_norm)); }));
      return x + y + z;
    }
    x = residual(x, "attn", at.input_norm, at.attention_norm,
                 [&](Var in) { return attention(in); });
    const bool has_both = d_.norms == NormPlace::kBoth;
    return residual(x, "mlp", has_both ? at.before_ffn : at.attention_norm, at.behind_ffn,
                    [&](Var in) { return ffn(in); });
  }

 private:
  Var norm(Var x, std::string_view name) { return normed(c_, d_, x, cat(at_, name)); }
  Var attention(Var x) {
    return self_attention(c_, d_, x, cat(at_, d_.names.attention), layer_, longest_);
  }
  Var ffn(Var x) {
    return d_.is_sparse(c_.config, layer_) ? expert_ffn(c_, d_.experts, x, at_)
                                           : feed_forward(c_, d_, x, cat(at_, d_.names.ffn));
  }
  template <class F>
  Var in_scope(const char* name, F&& f) {
    const Scope here(c_.b, name);
    return f();
  }
  // x and f of it, joined by the norms of that place.
  template <class F>
  Var residual(Var x, const char* scope, std::string_view before, std::string_view after, F&& f) {
    const Scope here(c_.b, scope);
    const bool is_normed = d_.norms == NormPlace::kPre || d_.norms == NormPlace::kBoth;
    Var y = f(is_normed ? norm(x, before) : x);
    if (d_.norms == NormPlace::kBoth || d_.norms == NormPlace::kBehind) y = norm(y, after);
    const Var sum = x + c_.dropout(y);
    return d_.norms == NormPlace::kPost ? norm(sum, after) : sum;
  }

  Context& c_;
  const Decoder& d_;
  int64_t layer_, longest_;
  std::string at_;
};

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

Var decoder_hidden(Context& c, Var tokens) {
  const auto model = find_model(c.config.type);
  TEGULA_CHECK(model.ok() && (*model)->decoder, c.config.type, " is no decoder");
  const Decoder d = (*model)->decoder(c.config);
  const int64_t longest = c.decoding ? c.config.max_seqlen : tokens.dim(1).bound();
  Var x = embed(c, d, tokens);
  for (int64_t i = 0; i < c.config.n_layers; ++i) x = Block(c, d, i, longest).apply(x);
  if (d.norms == NormPlace::kPost) return x;  // it is normed already
  const Scope scope(c.b, "head");
  return normed(c, d, x, cat(d.names.stem, d.names.final_norm));
}

Var decoder_head(Context& c) {
  if (c.config.is_tied()) return table(c);
  return c.weight(std::string(names_of(c.config).head),
                  Shape{c.config.vocab_size, c.config.d_model});
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
  if (const ModelDef* model = TEGULA_TRY(find_model(m.type));
      has_setting(*model, setting::kFfnBias) && m.get(setting::kFfnBias) == SettingValue())
    m.set(setting::kFfnBias, m.has_bias);
  if (const double share = m.number(setting::kRotaryShare); share > 1)
    return invalid_argument(cat("partial_rotary_factor ", share, " is more than 1, a whole head"));
  for (const int64_t longest : {int64_t{1}, int64_t{1} << 40}) {
    const Rotary r = rotary_of(m, longest);
    if (r.dims % 2 != 0)
      return invalid_argument(
          cat("head_dim ", m.head_dim, " is odd: rotary embedding needs pairs"));
    if (r.dims == 0)
      return invalid_argument(cat("partial_rotary_factor ", m.number(setting::kRotaryShare),
                                  " turns nothing of head_dim ", m.head_dim));
    if (!r.divisors.empty() && static_cast<int64_t>(r.divisors.size()) != r.dims / 2)
      return invalid_argument(cat("rope_parameters (or rope_scaling) have lists of ",
                                  r.divisors.size(), " factors, and of head_dim ", m.head_dim,
                                  " partial_rotary_factor turns ", r.dims / 2, " pairs"));
    for (const double x : r.divisors)
      if (!(x >= 1e-3 && x <= 1e6))
        return unsupported(cat("rope_scaling divides angles by ", x, ": 0.001 to 1e6 are kept"));
  }
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

bool is_sliding_layer(const ModelConfig& m, int64_t layer) {
  return m.texts(setting::kLayerTypes)[static_cast<size_t>(layer)] == kSliding;
}
int64_t window_by_type(const ModelConfig& m, int64_t layer) {
  return is_sliding_layer(m, layer) ? m.size(setting::kWindow) : 0;
}
int64_t window_of_all(const ModelConfig& m, int64_t) { return m.size(setting::kWindow); }

int64_t widest_window(const ModelConfig& m) {
  const auto model = find_model(m.type);
  if (!model.ok() || (*model)->decoder == nullptr) return 0;
  const Decoder d = (*model)->decoder(m);
  int64_t widest = 0;
  for (int64_t layer = 0; d.window != nullptr && layer < m.n_layers; ++layer)
    widest = std::max(widest, d.window(m, layer));
  return widest;
}

bool is_from_first_window(const ModelConfig& m, int64_t layer) {
  return m.size(setting::kWindow) > 0 && layer >= m.size(setting::kFirstWindow);
}

Status resolve_windows(ModelConfig& m, bool (*is_sliding)(const ModelConfig&, int64_t)) {
  using namespace setting;  // NOLINT(google-build-using-namespace)
  if (std::holds_alternative<std::monostate>(m.get(kUsesWindow)))
    m.set(kUsesWindow, m.size(kWindow) > 0);
  const std::vector<std::string> types = m.texts(kLayerTypes);
  if (!m.is_on(kUsesWindow) && m.size(kWindow) > 0 &&
      std::find(types.begin(), types.end(), kSliding) != types.end())
    return invalid_argument(
        "layer_types gives layers a window, and use_sliding_window is false: one is wrong");
  if (!m.is_on(kUsesWindow)) m.set(kWindow, int64_t{0});
  return resolve_layer_types(m, is_sliding);
}

}  // namespace tegula
