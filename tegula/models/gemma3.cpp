// Gemma 3, its text: Gemma 2 with norms of queries and keys, five layers with a window to one
// without, and a base of RoPE for each of the two. [Gemma Team 2025]
#include <cmath>

#include "tegula/models/decoder.h"
#include "tegula/models/table.h"
#include "tegula/ops/math.h"

namespace tegula {

namespace {

using namespace setting;  // NOLINT(google-build-using-namespace)
// The last of so many layers sees everything.
constexpr Setting kPattern = Setting::size("sliding_window_pattern", "", "", 1, 4096);

Var gelu_of(Var x) { return gelu(x); }

Rotary rotary(const ModelConfig& m, int64_t layer, int64_t longest) {
  if (is_sliding_layer(m, layer)) return {.theta = m.number(kLocalTheta), .dims = m.head_dim};
  return rotary_of(m, longest);
}

Decoder decoder(const ModelConfig& m) {
  return {.norm = NormKind::kRmsPlusOne,
          .norms = NormPlace::kBoth,
          .qk_norm = QkNorm::kHead,
          .has_qkv_bias = m.has_bias,
          .has_out_bias = m.has_bias,
          .activation = gelu_of,
          .rotary = rotary,
          .embedding_scale = std::sqrt(static_cast<double>(m.d_model)),
          .softmax_scale = 1 / std::sqrt(static_cast<double>(m.size(kScoreScale))),
          .window = window_by_type};
}

Status resolve(ModelConfig& m) {
  TEGULA_TRY(resolve_layer_types(
      m, [](const ModelConfig& c, int64_t layer) { return (layer + 1) % c.size(kPattern) != 0; }));
  TEGULA_TRY(resolve_rotary(m));
  if (m.size(kScoreScale) == 0) m.set(kScoreScale, m.head_dim);
  return {};
}

constexpr Field kFields[] = {{&kVocabSize, "vocab_size", 262208},
                             {&kWidth, "hidden_size", 2304},
                             {&kFfWidth, "intermediate_size", 9216},
                             {&kLayers, "num_hidden_layers", 26},
                             {&kHeads, "num_attention_heads", 8},
                             {&kKvHeads, "num_key_value_heads", 4},
                             {&kHeadDim, "head_dim", 256},
                             {&kContext, "max_position_embeddings", 131072},
                             {&kNormEps, "rms_norm_eps", 1e-6, 1e-6},
                             {&kRopeTheta, "rope_theta", 1e6, 1e6,
                              "rope_parameters.full_attention.rope_theta rope_scaling.rope_theta"},
                             {&kLocalTheta, "rope_local_base_freq", 1e4, 1e4,
                              "rope_parameters.sliding_attention.rope_theta"},
                             {&kRopeScaling, ""},
                             {&kDropout, "attention_dropout", 0},
                             {&kTied, "tie_word_embeddings", true, true},
                             {&kBias, "attention_bias", false},
                             {&kScoreScale, "query_pre_attn_scalar", 256},
                             {&kLogitCap, "final_logit_softcapping", 0, 0},
                             {&kWindow, "sliding_window", 4096, 4096},
                             {&kPattern, "sliding_window_pattern", 6, 6},
                             {&kLayerTypes, "layer_types", ""}};
// transformers' class has the first key and does not read it.
constexpr FixedKey kFixed[] = {{"attn_logit_softcapping", "null"},
                               {"hidden_activation", R"("gelu_pytorch_tanh"|"gelu_new")", true},
                               {"hidden_act", R"("gelu_pytorch_tanh"|"gelu_new"|null)"},
                               {"use_bidirectional_attention", "false|null"}};

}  // namespace

constinit const ModelDef gemma3_model = decoder_family({
    .name = "gemma3",
    .doc = "Gemma 3: windows in five layers of six, with a base of RoPE of their own",
    .decoder = decoder,
    .fields = kFields,
    .resolve = resolve,
    .hf_type = "gemma3_text",
    .hf_class = "Gemma3ForCausalLM",
    .fixed = kFixed,
    .free = "_sliding_window_pattern",
});

}  // namespace tegula
