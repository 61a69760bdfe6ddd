// Mistral: Llama whose attention sees a window of the last tokens. [Jiang et al. 2023]
#include "tegula/models/decoder.h"
#include "tegula/models/table.h"

namespace tegula {

namespace {

using namespace setting;  // NOLINT(google-build-using-namespace)

Decoder decoder(const ModelConfig&) { return {.window = window_of_all}; }

constexpr auto kFields =
    llama_fields({.n_kv_heads = 8, .context = 131072, .initial_norm_eps = 1e-5},
                 {{&kWindow, "sliding_window", 4096, 0}});

}  // namespace

constinit const ModelDef mistral_model = decoder_family({
    .name = "mistral",
    .doc = "Mistral: Llama with a sliding window",
    .decoder = decoder,
    .fields = kFields,
    .resolve = resolve_rotary,
    .hf_class = "MistralForCausalLM",
    .fixed = kLlamaFixed,
});

}  // namespace tegula
