// Qwen 2: Llama with biases on queries, keys and values. [Qwen Team 2024]
#include "tegula/models/decoder.h"
#include "tegula/models/table.h"

namespace tegula {

namespace {

Var hidden(Context& c, Var tokens) {
  Decoder d = llama_decoder();
  d.has_qkv_bias = true;
  d.window = window_by_type;
  return decoder_hidden(c, tokens, d);
}

using namespace setting;  // NOLINT(google-build-using-namespace)
// The window counts only where it is said that it does, and from that layer on.
constexpr Setting kUsesWindow = Setting::on("use_sliding_window", "", "");
constexpr Setting kFirstWindow = Setting::size("max_window_layers", "", "", 0, 4096);

Status resolve(ModelConfig& m) {
  if (std::holds_alternative<std::monostate>(m.get(kUsesWindow)))
    m.set(kUsesWindow, m.size(kWindow) > 0);
  if (!m.is_on(kUsesWindow)) m.set(kWindow, int64_t{0});
  TEGULA_TRY(resolve_layer_types(m, [](const ModelConfig& c, int64_t layer) {
    return c.size(kWindow) > 0 && layer >= c.size(kFirstWindow);
  }));
  return resolve_rotary(m);
}

constexpr Field kFields[] = {{&kVocabSize, "vocab_size"},
                             {&kWidth, "hidden_size"},
                             {&kFfWidth, "intermediate_size"},
                             {&kLayers, "num_hidden_layers"},
                             {&kHeads, "num_attention_heads"},
                             {&kKvHeads, "num_key_value_heads", 32},
                             {&kHeadDim, "head_dim", 0},
                             {&kContext, "max_position_embeddings", 32768},
                             {&kNormEps, "rms_norm_eps", 1e-6, 1e-6},
                             {&kRopeTheta, "rope_theta", 1e4, 1e4, kNestedTheta},
                             {&kRopeFactor, ""},
                             {&kRopeLow, ""},
                             {&kRopeHigh, ""},
                             {&kRopeOriginal, ""},
                             {&kDropout, "attention_dropout", 0},
                             {&kTied, "tie_word_embeddings", false, false},
                             {&kUsesWindow, "use_sliding_window", false},
                             {&kWindow, "sliding_window", 4096, 0},
                             {&kFirstWindow, "max_window_layers", 28, 0},
                             {&kLayerTypes, "layer_types", ""}};

}  // namespace

constinit const ModelDef qwen2_model = {
    .name = "qwen2",
    .doc = "Qwen 2: Llama with biases on q, k and v",
    .hidden = hidden,
    .head = decoder_head,
    .fields = kFields,
    .resolve = resolve,
    .hf_type = "qwen2",
    .hf_class = "Qwen2ForCausalLM",
    .hf_has_tokenizer = true,
    .fixed = kLlamaFixed,
    .cuts = kDecoderCuts,
};

}  // namespace tegula
