// Phi-3: Llama with one weight for queries, keys and values and one for gate and up; heads may be
// turned in part, and long texts are LongRoPE's. [Abdin et al. 2024; Ding et al. 2024]
#include "tegula/models/decoder.h"
#include "tegula/models/table.h"

namespace tegula {

namespace {

Decoder decoder(const ModelConfig&) {
  return {.fused_qkv = FusedQkv::kInTurn, .has_fused_gate = true, .window = window_of_all};
}

using namespace setting;  // NOLINT(google-build-using-namespace)
constexpr auto kFields =
    with_sizes({{&kKvHeads, "num_key_value_heads", 0},
                {&kHeadDim, "head_dim", 0},
                {&kContext, "max_position_embeddings", 4096},
                {&kTrainedContext, "original_max_position_embeddings", 4096, 4096},
                {&kNormEps, "rms_norm_eps", 1e-5, 1e-5},
                {&kRopeTheta, "rope_theta", 1e4, 1e4, kNestedTheta},
                {&kRotaryShare, "partial_rotary_factor", 1.0, 1.0, kNestedShare},
                {&kRopeScaling, ""},
                {&kDropout, "resid_pdrop embd_pdrop attention_dropout", 0},
                {&kTied, "tie_word_embeddings", false, false},
                {&kWindow, "sliding_window", 0, 0}});
constexpr Cut kCuts[] = {{"qkv_proj.weight", 0, &kKvHeads, 3, &kHeads},
                         {"o_proj.weight", 1, &kHeads},
                         {"gate_up_proj.weight", 0, nullptr, 2},
                         {"down_proj.weight", 1},
                         {"embed_tokens.weight", 0},
                         {"lm_head.weight", 0}};

}  // namespace

constinit const ModelDef phi3_model = decoder_family({
    .name = "phi3",
    .doc = "Phi-3: Llama with fused projections, heads turned in part",
    .decoder = decoder,
    .fields = kFields,
    .resolve = resolve_rotary,
    .hf_class = "Phi3ForCausalLM",
    .fixed = kLlamaFixed,
    .cuts = kCuts,
});

}  // namespace tegula
