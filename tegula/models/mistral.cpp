// Mistral: Llama whose attention sees a window of the last tokens. [Jiang et al. 2023]
#include "tegula/models/decoder.h"
#include "tegula/models/table.h"

namespace tegula {

namespace {

using namespace setting;  // NOLINT(google-build-using-namespace)

Decoder decoder(const ModelConfig&) { return {.window = window_of_all}; }

constexpr auto kFields = with_sizes({{&kKvHeads, "num_key_value_heads", 8},
                                     {&kHeadDim, "head_dim", 0},
                                     {&kContext, "max_position_embeddings", 131072},
                                     {&kNormEps, "rms_norm_eps", 1e-6, 1e-5},
                                     {&kRopeTheta, "rope_theta", 1e4, 1e4, kNestedTheta},
                                     {&kRopeScaling, ""},
                                     {&kDropout, "attention_dropout", 0},
                                     {&kTied, "tie_word_embeddings", false, false},
                                     {&kWindow, "sliding_window", 4096, 0}});

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
