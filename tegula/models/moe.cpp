// Mixture of experts: Llama with a sparse feed-forward layer. A router sends each token to the k
// likeliest of e experts and weighs their results. [Shazeer et al. 2017; Jiang et al. 2024]
#include <algorithm>
#include <cmath>

#include "tegula/models/llama.h"
#include "tegula/models/table.h"
#include "tegula/ops/expert.h"
#include "tegula/ops/math.h"
#include "tegula/ops/sorting.h"

namespace tegula {

namespace {

// Rows in an expert's bucket. Outside of training there is one for every token, so that none is
// dropped and a token's result does not depend on its neighbours.
int64_t capacity(const Context& c, int64_t tokens) {
  const ModelConfig& m = c.config;
  if (!c.is_training || m.capacity_factor == 0) return tokens;
  const double even =
      static_cast<double>(tokens * m.n_experts_per_token) / static_cast<double>(m.n_experts);
  return std::min(tokens, static_cast<int64_t>(std::ceil(m.capacity_factor * even)));
}

// e · the sum over experts of (share of choices) · (mean probability): 1 at an even load.
// [Fedus et al. 2022, eq. 4]
Var balance(Var probabilities, Var experts) {
  const Dim e = probabilities.dim(1);
  const Var share = reduce_mean(one_hot(experts, e), {0, 1});
  const Var chance = reduce_mean(probabilities, {0});
  return reduce_sum(share * chance, {0}) * static_cast<double>(e.bound());
}

// [b s d] -> [b s d]
Var sparse_ffn(Context& c, Var x, const std::string& layer) {
  const ModelConfig& m = c.config;
  const std::string at = layer + "block_sparse_moe.";
  const Result<Dim> tokens = mul(x.dim(0), x.dim(1));
  if (!tokens.ok()) return c.b.fail(tokens.error());
  const Var t = reshape(x, Shape{*tokens, m.d_model});
  const Var p = softmax(llama_linear(c, t, at + "gate", m.n_experts));  // [t e]
  const Ranked top = top_k(p, m.n_experts_per_token);                   // [t k]
  const Var weights = top.values / reduce_sum(top.values, {-1}, true);
  const Dispatched in = expert_dispatch(t, top.indices, m.n_experts, capacity(c, tokens->bound()));
  auto experts = [&](const char* name, Var v, int64_t n_out, double stddev) {
    const Var w = c.weight(cat(at, "experts.", name, ".weight"),
                           Shape{m.n_experts, n_out, v.dim(-1)}, Init::kNormal, stddev);
    return dot("e t k, e n k -> e t n", v, w);
  };
  const Var h =
      silu(experts("w1", in.buckets, m.d_ff, 0.02)) * experts("w3", in.buckets, m.d_ff, 0.02);
  const Var y = experts("w2", h, m.d_model, residual_stddev(m));
  if (m.balance_loss > 0) c.losses.push_back(balance(p, top.indices) * m.balance_loss);
  return reshape(expert_combine(y, top.indices, in.positions, weights), x.shape());
}

Var hidden(Context& c, Var tokens) { return llama_decoder(c, tokens, sparse_ffn); }

}  // namespace

constinit const ModelDef moe_model = {
    .name = "moe",
    .doc = "Mixtral: Llama with experts instead of one FFN",
    .hidden = hidden,
    .head = llama_head,
    .options =
        "n-heads n-kv-heads head-dim d-ff n-experts experts-per-token "
        "capacity-factor balance-loss dropout",
    .is_tied = false,
};

}  // namespace tegula
