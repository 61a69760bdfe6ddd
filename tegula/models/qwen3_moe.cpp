// Qwen 3 with experts: Qwen 3 with a sparse feed-forward layer. [Qwen Team 2025]
#include "tegula/models/decoder.h"
#include "tegula/models/table.h"

namespace tegula {

namespace {

using namespace setting;  // NOLINT(google-build-using-namespace)

Decoder decoder(const ModelConfig& m) {
  return {.qk_norm = QkNorm::kHead,
          .has_qkv_bias = m.has_bias,
          .has_out_bias = m.has_bias,
          .window = window_of_all,
          .has_experts = true,
          .experts = qwen_experts(m)};
}

Status resolve(ModelConfig& m) {
  if (m.get(kUsesWindow) == SettingValue()) m.set(kUsesWindow, m.size(kWindow) > 0);
  if (!m.is_on(kUsesWindow)) m.set(kWindow, int64_t{0});
  TEGULA_TRY(resolve_qwen_experts(m));
  return resolve_rotary(m);
}

constexpr Field kFields[] = {{&kVocabSize, "vocab_size"},
                             {&kWidth, "hidden_size"},
                             {&kDenseWidth, "intermediate_size", 6144, 0},
                             {&kFfWidth, "moe_intermediate_size", 768},
                             {&kLayers, "num_hidden_layers"},
                             {&kHeads, "num_attention_heads"},
                             {&kKvHeads, "num_key_value_heads", 4},
                             {&kHeadDim, "head_dim", 0},
                             {&kContext, "max_position_embeddings", 32768},
                             {&kExperts, "num_experts", 128, {}, "num_local_experts"},
                             {&kExpertsPerToken, "num_experts_per_tok", 8},
                             {&kNormalised, "norm_topk_prob", false, false},
                             {&kSparseStep, "decoder_sparse_step", 1, 1},
                             {&kDenseLayers, "mlp_only_layers", "", ""},
                             {&kNormEps, "rms_norm_eps", 1e-6, 1e-6},
                             {&kRopeTheta, "rope_theta", 1e4, 1e4, kNestedTheta},
                             {&kRopeScaling, ""},
                             {&kDropout, "attention_dropout", 0},
                             {&kBalance, "router_aux_loss_coef", 0.001},
                             {&kCapacity, ""},
                             {&kTied, "tie_word_embeddings", false, false},
                             {&kBias, "attention_bias", false},
                             {&kUsesWindow, "use_sliding_window", false},
                             {&kWindow, "sliding_window", 4096, 0}};
constexpr FixedKey kFixed[] = {{"hidden_act", R"("silu"|"swish")", true}};

}  // namespace

constinit const ModelDef qwen3_moe_model = decoder_family({
    .name = "qwen3_moe",
    .doc = "Qwen 3 with experts",
    .decoder = decoder,
    .fields = kFields,
    .resolve = resolve,
    .hf_class = "Qwen3MoeForCausalLM",
    .hf_has_tokenizer = true,
    .fixed = kFixed,
    .free = "max_window_layers",
    .names = {.stacked = ".experts."},
    .cuts = kQwenExpertCuts,
    .f32_only = "a mixture of experts generates in f32 alone, its gates' arithmetic is f32",
});

}  // namespace tegula
