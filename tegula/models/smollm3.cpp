// SmolLM 3: Llama whose every fourth layer turns neither queries nor keys. [Bakouch et al. 2025;
// Yang et al. 2025]
#include "tegula/models/decoder.h"
#include "tegula/models/table.h"

namespace tegula {

namespace {

using namespace setting;  // NOLINT(google-build-using-namespace)
// Layer by layer, 1: it turns them.
constexpr Setting kTurns = Setting::sizes("no_rope_layers", 0, 1);
constexpr Setting kInterval =
    Setting::size("no_rope_layer_interval", "no-rope-interval",
                  "The last of so many layers turns no queries and keys", 1, 4096);

Rotary rotary(const ModelConfig& m, int64_t layer, int64_t longest) {
  return m.sizes(kTurns)[static_cast<size_t>(layer)] != 0 ? rotary_of(m, longest) : Rotary{};
}

Decoder decoder(const ModelConfig& m) {
  return {.has_qkv_bias = m.has_bias,
          .has_out_bias = m.has_bias,
          .has_ffn_bias = m.is_on(setting::kFfnBias),
          .rotary = rotary,
          .window = window_by_type};
}

Status resolve(ModelConfig& m) {
  std::vector<int64_t> turns = m.sizes(kTurns);
  if (turns.empty())
    for (int64_t i = 0; i < m.n_layers; ++i) turns.push_back((i + 1) % m.size(kInterval) != 0);
  if (static_cast<int64_t>(turns.size()) < m.n_layers)
    return invalid_argument(cat("no_rope_layers has ", turns.size(), " layers, and n_layers is ",
                                m.n_layers, ": one of them must change"));
  m.set(kTurns, std::move(turns));
  TEGULA_TRY(resolve_windows(m, [](const ModelConfig& c, int64_t layer) {
    return c.size(kWindow) > 0 && c.sizes(kTurns)[static_cast<size_t>(layer)] == 0;
  }));
  return resolve_rotary(m);
}

constexpr auto kFields = llama_fields({.n_kv_heads = 4, .rope_theta = 2e6, .is_tied = true},
                                      {{&kBias, "attention_bias", false},
                                       {&kFfnBias, "mlp_bias", false},
                                       {&kUsesWindow, "use_sliding_window", false},
                                       {&kWindow, "sliding_window", 0, 0},
                                       {&kInterval, "no_rope_layer_interval", 4, 4},
                                       {&kTurns, "no_rope_layers", ""},
                                       {&kLayerTypes, "layer_types", ""}});

}  // namespace

constinit const ModelDef smollm3_model = decoder_family({
    .name = "smollm3",
    .doc = "SmolLM 3: Llama with layers that turn nothing",
    .decoder = decoder,
    .fields = kFields,
    .resolve = resolve,
    .hf_class = "SmolLM3ForCausalLM",
    .fixed = kLlamaFixed,
});

}  // namespace tegula
