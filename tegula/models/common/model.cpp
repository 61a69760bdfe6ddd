#include "tegula/models/model.h"

#include "tegula/ops/attention.h"
#include "tegula/ops/dynamic_slice.h"
#include "tegula/ops/linear_cross_entropy.h"
#include "tegula/ops/math.h"

namespace tegula {

namespace {

// Sizes of any use, and so small that no two of them overflow when multiplied.
struct Limit {
  const char* name;
  int64_t ModelConfig::*size;
  int64_t least, most;
};
constexpr Limit kLimits[] = {{"vocab_size", &ModelConfig::vocab_size, 1, 1 << 24},
                             {"n_layers", &ModelConfig::n_layers, 1, 4096},
                             {"n_heads", &ModelConfig::n_heads, 1, 65536},
                             {"n_kv_heads", &ModelConfig::n_kv_heads, 0, 65536},
                             {"head_dim", &ModelConfig::head_dim, 0, 65536},
                             {"d_model", &ModelConfig::d_model, 1, 1 << 24},
                             {"d_ff", &ModelConfig::d_ff, 0, 1 << 26},
                             {"max_seqlen", &ModelConfig::max_seqlen, 1, 1 << 28},
                             {"n_experts", &ModelConfig::n_experts, 0, 65536}};

bool has_attention(std::string_view type) {
  return type == "gpt2" || type == "llama" || type == "moe";
}

// What a model of these sizes would have to hold, before a graph of it is built. The factors are
// named, so that it is plain which of them to change.
Status check_products(const ModelConfig& m) {
  constexpr double kMost = 1LL << 42;  // elements: 16 TiB of f32
  using Factors = std::vector<std::pair<const char*, int64_t>>;
  const std::pair<const char*, int64_t> layers{"n_layers", m.n_layers};
  std::vector<Factors> products = {{{"vocab_size", m.vocab_size}, {"d_model", m.d_model}},
                                   {layers, {"d_model", m.d_model}, {"d_ff", m.d_ff}},
                                   {layers, {"d_model", m.d_model}, {"d_model", m.d_model}}};
  if (m.type == "moe") products[1].emplace_back("n_experts", m.n_experts);
  if (m.type == "gpt2") products.push_back({{"max_seqlen", m.max_seqlen}, {"d_model", m.d_model}});
  if (has_attention(m.type)) {
    products.push_back(
        {layers, {"d_model", m.d_model}, {"n_heads", m.n_heads}, {"head_dim", m.head_dim}});
    products.push_back({layers,
                        {"max_seqlen", m.max_seqlen},
                        {"n_kv_heads", m.n_kv_heads},
                        {"head_dim", m.head_dim}});
  }
  for (const Factors& factors : products) {
    double product = 1;
    std::string text;
    for (const auto& [name, size] : factors) {
      product *= static_cast<double>(size);
      text += cat(text.empty() ? "" : " × ", name, " ", size);
    }
    if (product > kMost)
      return invalid_argument(cat(text, " are ", product, " elements; at most ", kMost,
                                  " are supported: make one of them smaller"));
  }
  return {};
}

}  // namespace

Status ModelConfig::resolve() {
  for (const Limit& l : kLimits)
    if (const int64_t v = this->*l.size; v < l.least || v > l.most)
      return invalid_argument(cat(l.name, " is ", v, ", must be from ", l.least, " to ", l.most));
  if (n_kv_heads == 0) n_kv_heads = n_heads;
  if (const auto model = find_model(type); model.ok() && !tie_embeddings)
    tie_embeddings = (*model)->is_tied;
  const bool attends = has_attention(type);
  if (attends && head_dim == 0) {
    if (d_model % n_heads != 0)
      return invalid_argument(cat("d_model ", d_model, " is not a multiple of n_heads ", n_heads,
                                  ": change one of them or give head_dim"));
    head_dim = d_model / n_heads;
  }
  if (attends && n_heads % n_kv_heads != 0)
    return invalid_argument(
        cat("n_heads ", n_heads, " is not a multiple of n_kv_heads ", n_kv_heads));
  if ((type == "llama" || type == "moe") && head_dim % 2 != 0)
    return invalid_argument(cat("head_dim ", head_dim, " is odd: rotary embedding needs pairs"));
  if (type == "gpt2" && (n_kv_heads != n_heads || head_dim * n_heads != d_model))
    return invalid_argument(
        "gpt2 has n_kv_heads = n_heads and head_dim = d_model / n_heads: "
        "use --model llama for grouped heads");
  if (d_ff == 0)
    d_ff = type == "llama" || type == "moe" ? (d_model * 8 / 3 + 31) / 32 * 32 : 4 * d_model;
  if (dropout < 0 || dropout >= 1)
    return invalid_argument(cat("dropout ", dropout, " must lie in [0, 1)"));
  if (type == "moe" && (n_experts_per_token < 1 || n_experts_per_token > n_experts))
    return invalid_argument(
        cat("n_experts_per_token ", n_experts_per_token, " of n_experts ", n_experts));
  if (type == "moe" && has_bias)
    return invalid_argument("a mixture of experts has no biases: leave out --bias");
  return check_products(*this);
}

Var Context::weight(const std::string& name, const Shape& shape, Init init, double stddev,
                    bool decays) {
  for (size_t i = 0; i < specs_.size(); ++i)
    if (specs_[i].name == name) return vars_[i];
  specs_.push_back({name, {dtype, shape}, init, stddev, decays, b.scope()});
  vars_.push_back(b.weight(name, {dtype, shape}));
  return vars_.back();
}

Var Context::dropout(Var x) {
  if (config.dropout == 0 || !seed.valid()) return x;
  const Var u = random_uniform(seed, x.shape(), next_stream_++);
  const Var kept = mul(x, 1 / (1 - config.dropout));
  return select(ge(u, config.dropout), kept, zeros_like(x));
}

Var Context::state(const std::string& name, const Shape& shape) {
  return b.param("cache." + name, {dtype, shape}, Role::kState);
}

void Context::carry(const std::string& name, Var next) {
  if (!decoding) return;
  b.result("cache." + name, next);
  b.donate("cache." + name, "cache." + name);
}

Var Context::carried(const std::string& name, const Shape& shape) {
  const Var none = fill(b, 0, {dtype, shape});
  return decoding ? select(gt(decoding->position, 0.0), state(name, shape), none) : none;
}

// All keys (or values) so far: the cache with the fresh ones written behind the old.
Var Context::extended(const std::string& name, Var fresh) {
  const Var zero = constant(b, 0, DType::kI64);
  const Var starts[] = {zero, decoding->position, zero, zero};
  const Shape room = {fresh.dim(0), config.max_seqlen, fresh.dim(2), fresh.dim(3)};
  const Var stored = dynamic_update_slice(state(name, room), fresh, starts);
  carry(name, stored);
  return slice(stored, 1, 0, decoding->length);
}

Var Context::attend(Var q, Var k, Var v, int64_t layer) {
  AttentionOptions o;
  o.is_causal = true;
  if (decoding) {
    k = extended(cat("k.", layer), k);
    v = extended(cat("v.", layer), v);
  }
  if (config.dropout > 0 && seed.valid()) {
    o.dropout = config.dropout;
    o.seed = seed;
    o.stream = next_stream_++;
  }
  return attention(q, k, v, o).o;
}

Var Context::positions(Var tokens) {
  const Var p = iota(b, Shape{tokens.dim(1)}, 0, DType::kI64);
  return decoding ? add(p, decoding->position) : p;
}

Result<const ModelDef*> find_model(std::string_view name) {
  std::string names;
  for (const ModelDef* m : all_models()) {
    if (m->name == name) return m;
    names += cat(names.empty() ? "" : ", ", m->name);
  }
  return invalid_argument(cat("no model ", name, ": one of ", names));
}

bool has_option(const ModelDef& model, std::string_view option) {
  return cat(" n-layers d-model seqlen ", model.options, " ").find(cat(" ", option, " ")) !=
         std::string::npos;
}

Var model_loss(Context& c, const ModelDef& model, Var tokens, Var targets) {
  const Var h = model.hidden(c, tokens);
  const Scope at(c.b, "head");
  Var loss = cross_entropy_loss(h, model.head(c), targets);
  if (c.is_training)
    for (Var more : c.losses) loss = loss + more;
  return loss;
}

Var model_logits(Context& c, const ModelDef& model, Var tokens) {
  const Var h = model.hidden(c, tokens);
  const Scope at(c.b, "head");
  return dot("b s d, v d -> b s v", h, model.head(c), DType::kF32);
}

Var model_last_logits(Context& c, const ModelDef& model, Var tokens) {
  Var h = model.hidden(c, tokens);
  const Scope at(c.b, "head");
  const Var n = sub(extent(h, 1, DType::kI64), constant(c.b, 1, DType::kI64));
  const Var zero = constant(c.b, 0, DType::kI64);
  const Var starts[] = {zero, n, zero};
  h = dynamic_slice(h, starts, Shape{h.dim(0), 1, h.dim(2)});
  h = reshape(h, Shape{h.dim(0), h.dim(2)});
  return dot("b d, v d -> b v", h, model.head(c), DType::kF32);
}

Result<std::vector<WeightSpec>> model_weights(const ModelConfig& config) {
  const ModelDef* model = TEGULA_TRY(find_model(config.type));
  Module module;
  Builder b(module, "weights");
  Context c(b, config);
  const Var tokens = b.param("tokens", {DType::kI32, {1, config.max_seqlen}});
  model->hidden(c, tokens);
  model->head(c);
  if (b.failed()) return b.error();
  return c.weights();
}

int64_t parameter_count(const std::vector<WeightSpec>& weights) {
  int64_t n = 0;
  for (const WeightSpec& w : weights) n += w.type.shape.numel();
  return n;
}

}  // namespace tegula
