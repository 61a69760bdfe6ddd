// Gemma 2: norms on both sides of a layer, GeGLU, soft caps on attention and logits, a window in
// every other layer. [Gemma Team 2024]
#include <cmath>

#include "tegula/models/decoder.h"
#include "tegula/models/table.h"
#include "tegula/ops/math.h"
#include "tegula/ops/norm.h"

namespace tegula {

namespace {

using namespace setting;  // NOLINT(google-build-using-namespace)
constexpr Setting kAttentionCap =
    Setting::number("attn_logit_softcapping", "attention-softcap",
                    "Bound c of attention's scores s, c·tanh(s/c); 0: none", Range::kNotNegative)
        .or_null();
constexpr Setting kLogitCap =
    Setting::number("final_logit_softcapping", "logit-softcap",
                    "Bound c of logits z, c·tanh(z/c); 0: none", Range::kNotNegative)
        .or_null();
constexpr Setting kScalar = Setting::size("query_pre_attn_scalar", "", "", 1, 1 << 20);

// x/rms(x) · (1 + w), in f32 whatever x is: a w of bf16 beside 1 would lose its digits.
Var norm(Context& c, Var x, const std::string& name) {
  const Var w = c.weight(name + ".weight", Shape{x.dim(-1)}, Init::kZeros, 0, false);
  const DType sums = x.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
  return cast(rms_norm(cast(x, sums), cast(w, sums) + 1.0, c.config.norm_eps), x.dtype());
}

Var gelu_of(Var x) { return gelu(x); }

Var hidden(Context& c, Var tokens) {
  const ModelConfig& m = c.config;
  const Decoder d = {.norm = norm,
                     .ffn = gated_ffn,
                     .activation = gelu_of,
                     .norms = NormPlace::kBoth,
                     .embedding_scale = std::sqrt(static_cast<double>(m.d_model)),
                     .softmax_scale = 1 / std::sqrt(static_cast<double>(m.size(kScalar))),
                     .softcap = m.number(kAttentionCap),
                     .window = window_by_type};
  return decoder_hidden(c, tokens, d);
}

Var cap(Context& c, Var logits) {
  const double most = c.config.number(kLogitCap);
  return most > 0 ? tanh(logits * (1 / most)) * most : logits;
}

Status resolve(ModelConfig& m) {
  TEGULA_TRY(
      resolve_layer_types(m, [](const ModelConfig&, int64_t layer) { return layer % 2 == 0; }));
  TEGULA_TRY(resolve_rotary(m));
  if (m.size(kScalar) == 0) m.set(kScalar, m.head_dim);
  return {};
}

constexpr Field kFields[] = {{&kVocabSize, "vocab_size"},
                             {&kWidth, "hidden_size"},
                             {&kFfWidth, "intermediate_size"},
                             {&kLayers, "num_hidden_layers"},
                             {&kHeads, "num_attention_heads"},
                             {&kKvHeads, "num_key_value_heads", 4},
                             {&kHeadDim, "head_dim", 256},
                             {&kContext, "max_position_embeddings", 8192},
                             {&kNormEps, "rms_norm_eps", 1e-6, 1e-6},
                             {&kRopeTheta, "rope_theta", 1e4, 1e4, kNestedTheta},
                             {&kRopeFactor, ""},
                             {&kRopeLow, ""},
                             {&kRopeHigh, ""},
                             {&kRopeOriginal, ""},
                             {&kDropout, "attention_dropout", 0},
                             {&kTied, "tie_word_embeddings", true, true},
                             {&kScalar, "query_pre_attn_scalar", 256},
                             {&kAttentionCap, "attn_logit_softcapping", 50, 50},
                             {&kLogitCap, "final_logit_softcapping", 30, 30},
                             {&kWindow, "sliding_window", 4096, 4096},
                             {&kLayerTypes, "layer_types", ""}};
constexpr FixedKey kFixed[] = {{"hidden_activation", R"("gelu_pytorch_tanh"|"gelu_new")", true},
                               {"hidden_act", R"("gelu_pytorch_tanh"|"gelu_new"|null)"},
                               {"attention_bias", "false|null"},
                               {"use_bidirectional_attention", "false|null"}};

}  // namespace

constinit const ModelDef gemma2_model = {
    .name = "gemma2",
    .doc = "Gemma 2: norms on both sides, GeGLU, soft caps, alternating windows",
    .hidden = hidden,
    .head = decoder_head,
    .cap = cap,
    .fields = kFields,
    .resolve = resolve,
    .hf_type = "gemma2",
    .hf_class = "Gemma2ForCausalLM",
    .fixed = kFixed,
    .cuts = kDecoderCuts,
};

}  // namespace tegula
