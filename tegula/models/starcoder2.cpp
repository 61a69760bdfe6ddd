// StarCoder 2: layer norms, GELU without a gate, biases, rotary positions, a window. [Lozhkov et
// al. 2024]
#include "tegula/models/decoder.h"
#include "tegula/models/table.h"
#include "tegula/ops/math.h"

namespace tegula {

namespace {

Var gelu_of(Var x) { return gelu(x); }

Decoder decoder(const ModelConfig& m) {
  return {.norm = NormKind::kLayer,
          .has_norm_bias = true,
          .has_qkv_bias = m.has_bias,
          .has_out_bias = m.has_bias,
          .has_ffn_bias = m.has_bias,
          .is_gated = false,
          .activation = gelu_of,
          .window = window_of_all,
          .names = {.up = "c_fc", .down = "c_proj"}};
}

Status resolve(ModelConfig& m) {
  if (m.d_ff == 0) m.d_ff = 4 * m.d_model;
  return resolve_rotary(m);
}

using namespace setting;  // NOLINT(google-build-using-namespace)
constexpr auto kFields =
    with_sizes({{&kKvHeads, "num_key_value_heads", 2},
                {&kHeadDim, "head_dim", 0},
                {&kContext, "max_position_embeddings", 4096},
                {&kNormEps, "norm_epsilon", 1e-5, 1e-5},
                {&kRopeTheta, "rope_theta", 1e4, 1e4, kNestedTheta},
                {&kRopeScaling, ""},
                {&kDropout, "attention_dropout residual_dropout embedding_dropout", 0},
                {&kTied, "tie_word_embeddings", true, true},
                {&kBias, "use_bias", true},
                {&kWindow, "sliding_window", 0, 0}});
constexpr FixedKey kFixed[] = {{"hidden_act", R"("gelu_pytorch_tanh"|"gelu_new")", true}};
constexpr auto kCuts = with_attention({{"c_fc.weight", 0}, {"c_fc.bias", 0}, {"c_proj.weight", 1}});

}  // namespace

constinit const ModelDef starcoder2_model = decoder_family({
    .name = "starcoder2",
    .doc = "StarCoder 2: layer norm, GELU, biases, rotary positions, a window",
    .decoder = decoder,
    .fields = kFields,
    .resolve = resolve,
    .hf_class = "Starcoder2ForCausalLM",
    .fixed = kFixed,
    .cuts = kCuts,
});

}  // namespace tegula
