// Gemma 2: norms on both sides of a layer, GeGLU, soft caps on attention and logits, a window in
// every other layer. [Gemma Team 2024]
#include <cmath>

#include "tegula/models/decoder.h"
#include "tegula/models/table.h"
#include "tegula/ops/math.h"

namespace tegula {

namespace {

using namespace setting;  // NOLINT(google-build-using-namespace)

Var gelu_of(Var x) { return gelu(x); }

Decoder decoder(const ModelConfig& m) {
  return {.norm = NormKind::kRmsPlusOne,
          .norms = NormPlace::kBoth,
          .activation = gelu_of,
          .embedding_scale = std::sqrt(static_cast<double>(m.d_model)),
          .softmax_scale = 1 / std::sqrt(static_cast<double>(m.size(kScoreScale))),
          .softcap = m.number(kAttentionCap),
          .window = window_by_type};
}

Status resolve(ModelConfig& m) {
  TEGULA_TRY(
      resolve_layer_types(m, [](const ModelConfig&, int64_t layer) { return layer % 2 == 0; }));
  TEGULA_TRY(resolve_rotary(m));
  if (m.size(kScoreScale) == 0) m.set(kScoreScale, m.head_dim);
  return {};
}

constexpr auto kFields =
    llama_fields({.n_kv_heads = 4, .head_dim = 256, .context = 8192, .is_tied = true},
                 {{&kScoreScale, "query_pre_attn_scalar", 256},
                  {&kAttentionCap, "attn_logit_softcapping", 50, 50},
                  {&kLogitCap, "final_logit_softcapping", 30, 30},
                  {&kWindow, "sliding_window", 4096, 4096},
                  {&kLayerTypes, "layer_types", ""}});
constexpr FixedKey kFixed[] = {{"hidden_activation", R"("gelu_pytorch_tanh"|"gelu_new")", true},
                               {"hidden_act", R"("gelu_pytorch_tanh"|"gelu_new"|null)"},
                               {"attention_bias", "false|null"},
                               {"use_bidirectional_attention", "false|null"}};

}  // namespace

constinit const ModelDef gemma2_model = decoder_family({
    .name = "gemma2",
    .doc = "Gemma 2: norms on both sides, GeGLU, soft caps, alternating windows",
    .decoder = decoder,
    .fields = kFields,
    .resolve = resolve,
    .hf_class = "Gemma2ForCausalLM",
    .fixed = kFixed,
});

}  // namespace tegula
