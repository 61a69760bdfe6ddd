// Llama: RMS norm, rotary positions, grouped-query attention, SwiGLU. [Touvron et al. 2023]
#include "tegula/models/decoder.h"
#include "tegula/models/table.h"

namespace tegula {

namespace {

Decoder decoder(const ModelConfig& m) {
  return {.has_qkv_bias = m.has_bias,
          .has_out_bias = m.has_bias,
          .has_ffn_bias = m.is_on(setting::kFfnBias)};
}

using namespace setting;  // NOLINT(google-build-using-namespace)
constexpr auto kFields =
    llama_fields({.context = 2048, .initial_norm_eps = 1e-5},
                 {{&kBias, "attention_bias", false}, {&kFfnBias, "mlp_bias", false}});

}  // namespace

constinit const ModelDef llama_model = decoder_family({
    .name = "llama",
    .doc = "Llama: RMS norm, rotary positions, GQA, SwiGLU",
    .decoder = decoder,
    .fields = kFields,
    .resolve = resolve_rotary,
    .hf_class = "LlamaForCausalLM",
    .fixed = kLlamaFixed,
    .free = "pretraining_tp",
});

}  // namespace tegula
