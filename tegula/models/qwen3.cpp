// Qwen 3: Qwen 2 whose queries and keys are normed head by head. [Qwen Team 2025]
#include "tegula/models/decoder.h"
#include "tegula/models/table.h"

namespace tegula {

namespace {

Decoder decoder(const ModelConfig& m) {
  return {.qk_norm = QkNorm::kHead,
          .has_qkv_bias = m.has_bias,
          .has_out_bias = m.has_bias,
          .window = window_by_type};
}

Status resolve(ModelConfig& m) {
  TEGULA_TRY(resolve_windows(m, is_from_first_window));
  return resolve_rotary(m);
}

using namespace setting;  // NOLINT(google-build-using-namespace)
constexpr auto kFields =
    llama_fields({.n_kv_heads = 32, .head_dim = 128}, {{&kBias, "attention_bias", false},
                                                       {&kUsesWindow, "use_sliding_window", false},
                                                       {&kWindow, "sliding_window", 4096, 0},
                                                       {&kFirstWindow, "max_window_layers", 28, 0},
                                                       {&kLayerTypes, "layer_types", ""}});

}  // namespace

constinit const ModelDef qwen3_model = decoder_family({
    .name = "qwen3",
    .doc = "Qwen 3: norms of queries and keys, head by head",
    .decoder = decoder,
    .fields = kFields,
    .resolve = resolve,
    .hf_class = "Qwen3ForCausalLM",
    .hf_has_tokenizer = true,
    .fixed = kLlamaFixed,
});

}  // namespace tegula
