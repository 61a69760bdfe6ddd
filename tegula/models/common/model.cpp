#include "tegula/models/model.h"

#include "tegula/base/position_runs.h"
#include "tegula/models/decoder.h"
#include "tegula/models/last_logits.h"
#include "tegula/ops/attention.h"
#include "tegula/ops/blocks.h"
#include "tegula/ops/indexing.h"
#include "tegula/ops/linear_cross_entropy.h"
#include "tegula/ops/math.h"
#include "tegula/ops/table.h"

namespace tegula {

Var Context::weight(const std::string& name, const Shape& shape, Init init, double stddev,
                    bool decays) {
  const auto [place, is_new] = places_.try_emplace(name, specs_.size());
  if (!is_new) return vars_[place->second];
  Type stored{dtype, shape};
  const auto found = formats ? formats->find(name) : BlockFormats::const_iterator();
  const bool is_blocks = formats && found != formats->end();
  if (is_blocks) {
    const BlockLayout& layout = layout_of(found->second);
    stored.dtype = DType::kU8;
    Dim& last = stored.shape[shape.rank() - 1];
    last = last.bound() / layout.n_values * layout.n_bytes;
  }
  specs_.push_back({name, stored, init, stddev, decays, b.scope()});
  const Var w = b.weight(name, stored);
  vars_.push_back(is_blocks ? dequantise_blocks(w, found->second) : w);
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

void Context::keep(const std::string& name, Var next) {
  b.result("cache." + name, next);
  b.donate("cache." + name, "cache." + name);
}

// States of all texts lie in one tensor, a text's in the row of its first page.
Var Context::carried(const std::string& name, const Shape& shape) {
  const Var none = fill(b, 0, {dtype, shape});
  if (!decoding) return none;
  Shape all = shape;
  all[0] = decoding->pages.count;
  const Var rows = state(name, all);
  states_.emplace_back(name, rows);
  Var at = decoding->positions;  // of a text's first token
  if (decoding->cu_seqlens_q.valid()) at = slice(at, 1, 0, 1);
  for (int d = 2; d < shape.rank(); ++d) at = unsqueeze(at, -1);
  return select(gt(at, 0.0), gather(rows, state_rows(), 0), none);
}

Var Context::state_rows() const {
  return reshape(slice(decoding->block_table, 1, 0, 1), {decoding->block_table.dim(0)});
}

void Context::carry(const std::string& name, Var next) {
  if (!decoding) return;
  for (const auto& [known, rows] : states_)
    if (known == name) keep(name, scatter(rows, state_rows(), next, 0, ScatterMode::kSet));
}

// All keys (or values) so far: the cache, in pages, with those of this call's tokens.
Var Context::appended(const std::string& name, Var fresh, const CachePages& pages, Var slots) {
  const int64_t heads = fresh.dim(2).bound(), d = fresh.dim(3).bound();
  const Type type{pages.dtype.value_or(dtype), {pages.count * pages.size, heads, d}};
  const Var rows = b.param("cache." + name, type, Role::kState);
  const Var row = cast(reshape(fresh, {slots.dim(0), heads, d}), type.dtype);
  const Var stored = scatter(rows, slots, row, 0, ScatterMode::kSet);
  keep(name, stored);
  return reshape(stored, {pages.count, pages.size, heads, d});
}

Var Context::attend(Var q, Var k, Var v, int64_t layer) {
  return attend(q, k, v, layer, {.is_causal = true});
}

Var Context::attend(Var q, Var k, Var v, int64_t layer, AttentionOptions o) {
  if (decoding) return attend_in_pages(q, k, v, layer, o);
  if (lengths.valid()) {  // keys in pages, of which a row has so many keys
    const int64_t rows = k.dim(0).bound(), pages = k.dim(1).bound() / kRowPage;
    const auto in_pages = [&](Var x) {
      return reshape(x, Shape{rows * pages, kRowPage, x.dim(2), x.dim(3)});
    };
    o.seqlens_k = lengths;
    o.block_table = reshape(iota(b, Shape{rows * pages}, 0, DType::kI32), Shape{rows, pages});
    return attention(q, in_pages(k), in_pages(v), o).o;
  }
  o.q_runs = order, o.k_runs = order;
  if (config.dropout > 0 && seed.valid()) {
    o.dropout = config.dropout;
    o.seed = seed;
    o.stream = next_stream_++;
  }
  return attention(q, k, v, o).o;
}

Var Context::attend_in_pages(Var q, Var k, Var v, int64_t layer, AttentionOptions o) {
  const bool in_ring = o.window_left >= 0 && decoding->ring_slots.valid();
  const CachePages& pages = in_ring ? decoding->ring : decoding->pages;
  const Var slots = in_ring ? decoding->ring_slots : decoding->slots;
  k = appended(cat("k.", layer), k, pages, slots);
  v = appended(cat("v.", layer), v, pages, slots);
  o.seqlens_k = decoding->seqlens_k;
  o.block_table = in_ring ? decoding->ring_table : decoding->block_table;
  o.cu_seqlens_q = decoding->cu_seqlens_q;
  // It reads the cache where it lies, in whatever dtype, and computes in f32.
  const DType of_q = q.dtype(), of_k = k.dtype();
  if (of_q != of_k) q = cast(q, pages.rounds_queries ? of_k : DType::kF32);
  return cast(attention(q, k, v, o).o, of_q);
}

Var Context::positions(Var tokens) {
  if (decoding) return decoding->positions;
  if (order.empty()) return iota(b, Shape{tokens.dim(1)}, 0, DType::kI64);
  if (positions_.valid()) return positions_;
  const PositionRuns runs = PositionRuns::of(order);
  std::vector<int64_t> all;
  for (int64_t i = 0; i < runs.count(); ++i) all.push_back(runs.at(i));
  return positions_ = constant_ints(b, std::move(all), DType::kI64);
}

Status check_predicts(const ModelDef& model, std::string_view what) {
  if (!model.sees_ahead) return {};
  return unsupported(cat(what, ": ", model.name,
                         " sees what follows a token, so it predicts no next "
                         "one; tegula embed makes vectors of texts with it, and tegula train "
                         "teaches it to find masked tokens"));
}

Result<const ModelDef*> find_model(std::string_view name) {
  std::string names;
  for (const ModelDef* m : all_models()) {
    if (m->name == name) return m;
    names += cat(names.empty() ? "" : ", ", m->name);
  }
  return invalid_argument(cat("no model ", name, ": one of ", names));
}

// 0: the family has none, or this model.
static double logit_cap(const ModelDef& model, const ModelConfig& config) {
  return has_setting(model, setting::kLogitCap) ? config.number(setting::kLogitCap) : 0;
}

// Whether logits are more than products with the head.
static bool has_more_than_products(const ModelDef& model, const ModelConfig& config) {
  return logit_cap(model, config) > 0 || model.head_bias != nullptr;
}

Var hidden_logits(Context& c, const ModelDef& model, Var h) {
  if (model.before_head != nullptr) h = model.before_head(c, h);
  // Without the shards of mode exact, which the loss's products have not: its head is cut by rows.
  Attrs attrs{{"dims", std::string(h.rank() == 2 ? "b d, v d -> b v" : "b s d, v d -> b s v")}};
  if (h.dtype() != DType::kF32) attrs.set("out", DType::kF32);
  Var y = c.b.emit(dot_op, std::move(attrs), {h, model.head(c)});
  if (model.head_bias != nullptr) y = y + cast(model.head_bias(c), DType::kF32);
  const double most = logit_cap(model, c.config);
  return most > 0 ? tanh(y * (1 / most)) * most : y;
}

Var hidden_loss(Context& c, const ModelDef& model, Var h, Var targets) {
  if (has_more_than_products(model, c.config))
    return logits_cross_entropy_loss(hidden_logits(c, model, h), targets);
  return cross_entropy_loss(h, model.head(c), targets);
}

// In the order in which the loss's op has it, or the loss of logits that are more than products.
static Var lse_of(Context& c, const ModelDef& model, Var logits) {
  Attrs attrs;
  if (!has_more_than_products(model, c.config)) attrs.set("by_blocks", true);
  return c.b.emit(logsumexp_op, std::move(attrs), {logits});
}

Var hidden_losses(Context& c, const ModelDef& model, Var h, Var targets) {
  const bool has_blocks = c.formats != nullptr && !c.formats->empty();
  if (has_blocks || has_more_than_products(model, c.config)) {
    const Var x = hidden_logits(c, model, h);
    const int last = x.rank() - 1;
    return lse_of(c, model, x) - squeeze(gather(x, unsqueeze(targets, -1), last, last), -1);
  }
  const LinearCrossEntropy p = linear_cross_entropy(h, model.head(c), targets);
  return p.lse - p.picked;
}

Var model_loss(Context& c, const ModelDef& model, Var tokens, Var targets) {
  const Var h = model.hidden(c, tokens);
  const Scope at(c.b, "head");
  Var loss = hidden_loss(c, model, h, targets);
  if (c.is_training)
    for (Var more : c.losses) loss = loss + more;
  return loss;
}

Var model_logits(Context& c, const ModelDef& model, Var tokens) {
  const Var h = model.hidden(c, tokens);
  const Scope at(c.b, "head");
  return hidden_logits(c, model, h);
}

LastLogits last_logits(Context& c, const ModelDef& model, Var tokens, bool wants_lse) {
  const Var h = model.hidden(c, tokens);
  const Scope at(c.b, "head");
  const Var last = c.decoding->last;
  Var rows = reshape(h, Shape{h.dim(last.valid() ? 1 : 0), h.dim(2)});
  if (last.valid()) rows = gather(rows, last, 0);
  const Var logits = hidden_logits(c, model, rows);
  return {logits, wants_lse ? lse_of(c, model, logits) : Var()};
}
Var model_last_logits(Context& c, const ModelDef& model, Var tokens) {
  return last_logits(c, model, tokens, false).logits;
}

Result<std::vector<WeightSpec>> model_weights(const ModelConfig& config) {
  const ModelDef* model = TEGULA_TRY(find_model(config.type));
  Module module;
  Builder b(module, "weights");
  Context c(b, config);
  const Var tokens = b.param("tokens", {DType::kI32, {1, config.max_seqlen}});
  const Var h = model->hidden(c, tokens);
  if (model->before_head != nullptr) model->before_head(c, h);
  model->head(c);
  if (model->head_bias != nullptr) model->head_bias(c);
  if (b.failed()) return b.error();
  return c.weights();
}

int64_t parameter_count(const std::vector<WeightSpec>& weights) {
  int64_t n = 0;
  for (const WeightSpec& w : weights) n += w.type.shape.numel();
  return n;
}

int64_t part_extent(const ModelConfig& config, const Cut& cut, int64_t whole) {
  if (cut.first == nullptr) return whole / cut.parts;
  const int64_t each = config.size(*cut.units), first = config.size(*cut.first);
  return whole / (first + (cut.parts - 1) * each) * each;
}

}  // namespace tegula
