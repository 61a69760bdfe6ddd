// Qwen 2 with experts, one of which sees every token. [Qwen Team 2024]
#include "tegula/models/decoder.h"
#include "tegula/models/table.h"

namespace tegula {

namespace {

using namespace setting;  // NOLINT(google-build-using-namespace)
constexpr Setting kSharedWidth =
    Setting::size("shared_expert_ff", "shared-ff",
                  "Width of the expert that sees every token; 0: d-ff", 0, 1 << 26);

Decoder decoder(const ModelConfig& m) {
  Experts experts = qwen_experts(m);
  experts.shared_ff = m.size(kSharedWidth);
  return {.has_qkv_bias = m.has_bias,
          .window = window_by_type,
          .has_experts = true,
          .experts = experts};
}

// Every other layer, up to one.
bool is_sliding(const ModelConfig& m, int64_t layer) {
  return m.size(kWindow) > 0 && layer % 2 == 0 && layer < m.size(kFirstWindow);
}

Status resolve(ModelConfig& m) {
  TEGULA_TRY(resolve_windows(m, is_sliding));
  TEGULA_TRY(resolve_qwen_experts(m));
  TEGULA_TRY(resolve_rotary(m));
  if (m.size(kSharedWidth) == 0) m.set(kSharedWidth, m.d_ff);
  return {};
}

constexpr Field kFields[] = {{&kVocabSize, "vocab_size"},
                             {&kWidth, "hidden_size"},
                             {&kDenseWidth, "intermediate_size", 5632, 0},
                             {&kFfWidth, "moe_intermediate_size", 1408},
                             {&kLayers, "num_hidden_layers"},
                             {&kHeads, "num_attention_heads"},
                             {&kKvHeads, "num_key_value_heads", 16},
                             {&kHeadDim, "head_dim", 0},
                             {&kContext, "max_position_embeddings", 32768},
                             {&kExperts, "num_experts", 60, {}, "num_local_experts"},
                             {&kExpertsPerToken, "num_experts_per_tok", 4},
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
                             {&kBias, "qkv_bias", true},
                             {&kSharedWidth, "shared_expert_intermediate_size", 5632, 0},
                             {&kUsesWindow, "use_sliding_window", false},
                             {&kWindow, "sliding_window", 4096, 0},
                             {&kFirstWindow, "max_window_layers", 28, 4096},
                             {&kLayerTypes, "layer_types", ""}};
constexpr FixedKey kFixed[] = {{"hidden_act", R"("silu"|"swish")", true}};

}  // namespace

constinit const ModelDef qwen2_moe_model = decoder_family({
    .name = "qwen2_moe",
    .doc = "Qwen 2 with experts, one of them shared",
    .decoder = decoder,
    .fields = kFields,
    .resolve = resolve,
    .hf_class = "Qwen2MoeForCausalLM",
    .hf_has_tokenizer = true,
    .fixed = kFixed,
    .names = {.stacked = ".experts."},
    .cuts = kQwenExpertCuts,
    .f32_only = "a mixture of experts generates in f32 alone, its gates' arithmetic is f32",
});

}  // namespace tegula
