// Mixture of experts: Llama with a sparse feed-forward layer. A router sends each token to the k
// likeliest of e experts and weighs their results. [Shazeer et al. 2017; Jiang et al. 2024]
#include <cmath>
#include <numeric>

#include "tegula/base/algorithm.h"
#include "tegula/models/decoder.h"
#include "tegula/models/table.h"
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

// [b s d] -> [b s d]
Var sparse_ffn(Context& c, const Decoder&, Var x, const std::string& layer) {
  const ModelConfig& m = c.config;
  const std::string at = layer + "block_sparse_moe.";
  const int64_t shards = shards_of(x.dim(0));
  const Dim sequences = shards > 1 ? Dim(x.dim(0).bound() / shards) : x.dim(0);
  const Result<Dim> tokens = mul(sequences, x.dim(1));
  if (!tokens.ok()) return c.b.fail(tokens.error());
  const Var t = reshape(x, Shape{shards, *tokens, m.d_model});
  const Var p = softmax(decoder_linear(c, t, at + "gate", m.n_experts));  // [s t e]
  const Ranked top = top_k(p, m.n_experts_per_token);                     // [s t k]
  const Var weights = top.values / reduce_sum(top.values, {-1}, true);
  const Dispatched in = expert_dispatch(t, top.indices, m.n_experts, capacity(c, tokens->bound()));
  auto experts = [&](const char* name, Var v, int64_t n_out, double stddev) {
    const Var w = c.weight(cat(at, "experts.", name, ".weight"),
                           Shape{m.n_experts, n_out, v.dim(-1)}, Init::kNormal, stddev);
    return dot("e s t k, e n k -> e s t n", v, w);
  };
  const Var h =
      silu(experts("w1", in.buckets, m.d_ff, 0.02)) * experts("w3", in.buckets, m.d_ff, 0.02);
  const Var y = experts("w2", h, m.d_model, residual_stddev(m));
  if (m.balance_loss > 0) c.losses.push_back(balance(p, top.indices) * m.balance_loss);
  return reshape(expert_combine(y, top.indices, in.positions, weights), x.shape());
}

Var hidden(Context& c, Var tokens) {
  Decoder d = llama_decoder();
  d.ffn = sparse_ffn;
  return decoder_hidden(c, tokens, d);
}

Status resolve(ModelConfig& m) {
  if (m.n_experts_per_token > m.n_experts)
    return invalid_argument(
        cat("n_experts_per_token ", m.n_experts_per_token, " of n_experts ", m.n_experts));
  if (m.has_bias) return invalid_argument("a mixture of experts has no biases: leave out --bias");
  return resolve_rotary(m);
}

using namespace setting;  // NOLINT(google-build-using-namespace)
constexpr Field kFields[] = {{&kVocabSize, "vocab_size"},
                             {&kWidth, "hidden_size"},
                             {&kFfWidth, "intermediate_size"},
                             {&kLayers, "num_hidden_layers"},
                             {&kHeads, "num_attention_heads"},
                             {&kKvHeads, "num_key_value_heads", 8},
                             {&kHeadDim, "head_dim", 0},
                             {&kContext, "max_position_embeddings", 131072},
                             {&kExperts, "num_local_experts", 8, {}, "num_experts"},
                             {&kExpertsPerToken, "num_experts_per_tok", 2},
                             {&kNormEps, "rms_norm_eps", 1e-5, 1e-5},
                             {&kRopeTheta, "rope_theta", 1e6, 1e4, kNestedTheta},
                             {&kRopeFactor, ""},
                             {&kRopeLow, ""},
                             {&kRopeHigh, ""},
                             {&kRopeOriginal, ""},
                             {&kDropout, "attention_dropout", 0},
                             {&kBalance, "router_aux_loss_coef", 0.001},
                             {&kCapacity, ""},
                             {&kTied, "tie_word_embeddings", false, false}};
constexpr FixedKey kFixed[] = {{"hidden_act", R"("silu"|"swish")", true},
                               {"router_jitter_noise", "0.0|0|null"},
                               {"sliding_window", "null"}};
constexpr Cut kCuts[] = {{"q_proj.weight", 0, &kHeads},
                         {"k_proj.weight", 0, &kKvHeads},
                         {"v_proj.weight", 0, &kKvHeads},
                         {"o_proj.weight", 1, &kHeads},
                         {"experts.w1.weight", 0, &kExperts},
                         {"experts.w2.weight", 0, &kExperts},
                         {"experts.w3.weight", 0, &kExperts},
                         {"embed_tokens.weight", 0},
                         {"lm_head.weight", 0}};

}  // namespace

constinit const ModelDef moe_model = {
    .name = "moe",
    .doc = "Mixtral: Llama with experts instead of one FFN",
    .hidden = hidden,
    .head = decoder_head,
    .fields = kFields,
    .resolve = resolve,
    .hf_type = "mixtral",
    .hf_class = "MixtralForCausalLM",
    .fixed = kFixed,
    .names = {.stacked = ".experts."},
    .cuts = kCuts,
    .f32_only = "a mixture of experts generates in f32 alone, its gates' arithmetic is f32",
};

}  // namespace tegula
