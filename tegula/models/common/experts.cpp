#include "tegula/models/common/experts.h"

#include <cmath>
#include <numeric>

#include "tegula/base/range.h"
#include "tegula/ops/expert.h"
#include "tegula/ops/indexing.h"
#include "tegula/ops/math.h"
#include "tegula/ops/sorting.h"

namespace tegula {

namespace {

// Sequences are dealt out in 8, 4 or 2 shards, whichever divides them, or not at all: what an
// expert has room for, and how evenly it is used, is a matter of each shard, so that ranks that
// hold whole shards need not know of others.
constexpr int64_t kMostShards = 8;
int64_t shards_of(Dim batch) { return batch.is_const() ? std::gcd(batch.bound(), kMostShards) : 1; }

// Rows in an expert's bucket of one shard. Outside of training there is one for every token, so
// that none is dropped and a token's result does not depend on its neighbours.
int64_t capacity(const Context& c, int64_t tokens) {
  const ModelConfig& m = c.config;
  if (!c.is_training || m.capacity_factor == 0) return tokens;
  const double even =
      static_cast<double>(tokens * m.n_experts_per_token) / static_cast<double>(m.n_experts);
  return std::min(tokens, static_cast<int64_t>(std::ceil(m.capacity_factor * even)));
}

// The mean over shards of e · the sum over experts of (share of choices) · (mean probability): 1 at
// an even load. probabilities: [s t e]. [Fedus et al. 2022, eq. 4]
Var balance(Var probabilities, Var experts) {
  const Dim e = probabilities.dim(2);
  const Var share = reduce_mean(one_hot(experts, e), {1, 2});
  const Var chance = reduce_mean(probabilities, {1});
  const Var each = reduce_sum(share * chance, {1});
  // One shard's is the mean: a sum of a single element has no kernel.
  const bool is_one = each.dim(0).is_const() && each.dim(0).bound() == 1;
  return (is_one ? reshape(each, {}) : reduce_mean(each, {0})) * static_cast<double>(e.bound());
}

// down(silu(gate(x)) · up(x)) of every token, by a share of its own. x: [s t d]
Var shared_expert(Context& c, const Experts& e, Var x, const std::string& at) {
  const auto in = [&](const char* name) {
    return decoder_linear(c, x, cat(at, "shared_expert.", name), e.shared_ff);
  };
  const Var gate = silu(in("gate_proj"));
  const Var y = decoder_linear(c, gate * in("up_proj"), at + "shared_expert.down_proj",
                               c.config.d_model, residual_stddev(c.config));
  return sigmoid(decoder_linear(c, x, at + "shared_expert_gate", 1)) * y;
}

}  // namespace

Var expert_ffn(Context& c, const Experts& e, Var x, const std::string& layer) {
  const ModelConfig& m = c.config;
  const std::string at = cat(layer, e.at);
  const int64_t shards = shards_of(x.dim(0));
  const Dim sequences = shards > 1 ? Dim(x.dim(0).bound() / shards) : x.dim(0);
  const Result<Dim> tokens = mul(sequences, x.dim(1));
  if (!tokens.ok()) return c.b.fail(tokens.error());
  const Var t = reshape(x, Shape{shards, *tokens, m.d_model});
  const Var p = softmax(decoder_linear(c, t, at + "gate", m.n_experts));  // [s t e]
  const Ranked top = top_k(p, m.n_experts_per_token);                     // [s t k]
  const Var weights =
      e.is_normalised ? top.values / reduce_sum(top.values, {-1}, true) : top.values;
  const Dispatched in = expert_dispatch(t, top.indices, m.n_experts, capacity(c, tokens->bound()));
  auto experts = [&](std::string_view name, Var v, int64_t n_out, double stddev) {
    const Var w = c.weight(cat(at, "experts.", name, ".weight"),
                           Shape{m.n_experts, n_out, v.dim(-1)}, Init::kNormal, stddev);
    return dot("e s t k, e n k -> e s t n", v, w);
  };
  const Var h =
      silu(experts(e.gate, in.buckets, m.d_ff, 0.02)) * experts(e.up, in.buckets, m.d_ff, 0.02);
  const Var each = experts(e.down, h, m.d_model, residual_stddev(m));
  if (m.balance_loss > 0) c.losses.push_back(balance(p, top.indices) * m.balance_loss);
  Var y = expert_combine(each, top.indices, in.positions, weights);
  if (e.shared_ff > 0) y = y + shared_expert(c, e, t, at);
  return reshape(y, x.shape());
}

Experts qwen_experts(const ModelConfig& m) {
  using namespace setting;  // NOLINT(google-build-using-namespace)
  const auto are_in = [](const ModelConfig& c, int64_t layer) {
    const std::vector<int64_t> dense = c.sizes(kDenseLayers);
    return !contains(dense, layer) && (layer + 1) % c.size(kSparseStep) == 0;
  };
  return {.at = "mlp.",
          .gate = "gate_proj",
          .up = "up_proj",
          .down = "down_proj",
          .is_normalised = m.is_on(kNormalised),
          .are_in = are_in,
          .dense_ff = m.size(kDenseWidth)};
}

Status resolve_qwen_experts(ModelConfig& m) {
  if (m.n_experts_per_token > m.n_experts)
    return invalid_argument(
        cat("n_experts_per_token ", m.n_experts_per_token, " of n_experts ", m.n_experts));
  if (m.size(setting::kDenseWidth) == 0) m.set(setting::kDenseWidth, 4 * m.d_model);
  return {};
}

}  // namespace tegula
