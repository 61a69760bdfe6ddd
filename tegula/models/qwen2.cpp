// Qwen 2: Llama with biases on queries, keys and values. [Qwen Team 2024]
#include "tegula/models/decoder.h"
#include "tegula/models/table.h"

namespace tegula {

namespace {

Decoder decoder(const ModelConfig&) { return {.has_qkv_bias = true, .window = window_by_type}; }

using namespace setting;  // NOLINT(google-build-using-namespace)
Status resolve(ModelConfig& m) {
  TEGULA_TRY(resolve_windows(m, is_from_first_window));
  return resolve_rotary(m);
}

constexpr auto kFields =
    llama_fields({.n_kv_heads = 32}, {{&kUsesWindow, "use_sliding_window", false},
                                      {&kWindow, "sliding_window", 4096, 0},
                                      {&kFirstWindow, "max_window_layers", 28, 0},
                                      {&kLayerTypes, "layer_types", ""}});

}  // namespace

constinit const ModelDef qwen2_model = decoder_family({
    .name = "qwen2",
    .doc = "Qwen 2: Llama with biases on q, k and v",
    .decoder = decoder,
    .fields = kFields,
    .resolve = resolve,
    .hf_class = "Qwen2ForCausalLM",
    .hf_has_tokenizer = true,
    .fixed = kLlamaFixed,
});

}  // namespace tegula
