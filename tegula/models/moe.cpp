// Mixture of experts: Llama with a sparse feed-forward layer. [Shazeer et al. 2017; Jiang et al.
// 2024]
#include "tegula/models/decoder.h"
#include "tegula/models/table.h"

namespace tegula {

namespace {

Decoder decoder(const ModelConfig&) { return {.has_experts = true}; }

Status resolve(ModelConfig& m) {
  if (m.n_experts_per_token > m.n_experts)
    return invalid_argument(
        cat("n_experts_per_token ", m.n_experts_per_token, " of n_experts ", m.n_experts));
  if (m.has_bias) return invalid_argument("a mixture of experts has no biases: leave out --bias");
  return resolve_rotary(m);
}

using namespace setting;  // NOLINT(google-build-using-namespace)
constexpr auto kFields = with_sizes({{&kKvHeads, "num_key_value_heads", 8},
                                     {&kHeadDim, "head_dim", 0},
                                     {&kContext, "max_position_embeddings", 131072},
                                     {&kExperts, "num_local_experts", 8, {}, "num_experts"},
                                     {&kExpertsPerToken, "num_experts_per_tok", 2},
                                     {&kNormEps, "rms_norm_eps", 1e-5, 1e-5},
                                     {&kRopeTheta, "rope_theta", 1e6, 1e4, kNestedTheta},
                                     {&kRopeScaling, ""},
                                     {&kDropout, "attention_dropout", 0},
                                     {&kBalance, "router_aux_loss_coef", 0.001},
                                     {&kCapacity, ""},
                                     {&kTied, "tie_word_embeddings", false, false}});
constexpr FixedKey kFixed[] = {{"hidden_act", R"("silu"|"swish")", true},
                               {"router_jitter_noise", "0.0|0|null"},
                               {"sliding_window", "null"}};
constexpr auto kCuts = with_attention({{"experts.w1.weight", 0, &kExperts},
                                       {"experts.w2.weight", 0, &kExperts},
                                       {"experts.w3.weight", 0, &kExperts}});

}  // namespace

constinit const ModelDef moe_model = decoder_family({
    .name = "moe",
    .doc = "Mixtral: Llama with experts instead of one FFN",
    .decoder = decoder,
    .fields = kFields,
    .resolve = resolve,
    .hf_type = "mixtral",
    .hf_class = "MixtralForCausalLM",
    .fixed = kFixed,
    .names = {.stacked = ".experts."},
    .cuts = kCuts,
    .f32_only = "a mixture of experts generates in f32 alone, its gates' arithmetic is f32",
});

}  // namespace tegula
