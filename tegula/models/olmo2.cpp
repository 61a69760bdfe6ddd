// OLMo 2: norms behind attention and the feed-forward layer, and of all queries and all keys.
// [OLMo Team 2024]
#include "tegula/models/decoder.h"
#include "tegula/models/table.h"

namespace tegula {

namespace {

Decoder decoder(const ModelConfig& m) {
  return {.norms = NormPlace::kBehind,
          .qk_norm = QkNorm::kWidth,
          .has_qkv_bias = m.has_bias,
          .has_out_bias = m.has_bias};
}

using namespace setting;  // NOLINT(google-build-using-namespace)
constexpr auto kFields =
    llama_fields({.context = 2048, .norm_eps = 1e-5}, {{&kBias, "attention_bias", false}});
// The norms of queries and keys are over all heads, so these stay together.
constexpr Cut kCuts[] = {{"gate_proj.weight", 0},
                         {"up_proj.weight", 0},
                         {"down_proj.weight", 1},
                         {"embed_tokens.weight", 0},
                         {"lm_head.weight", 0}};

}  // namespace

constinit const ModelDef olmo2_model = decoder_family({
    .name = "olmo2",
    .doc = "OLMo 2: norms behind each part, and of queries and keys",
    .decoder = decoder,
    .fields = kFields,
    .resolve = resolve_rotary,
    .hf_class = "Olmo2ForCausalLM",
    .fixed = kLlamaFixed,
    .cuts = kCuts,
});

}  // namespace tegula
