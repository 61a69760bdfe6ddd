// GPT-NeoX (Pythia): attention and feed-forward layer side by side, a quarter of each head turned.
// [Black et al. 2022]
#include "tegula/models/decoder.h"
#include "tegula/models/table.h"
#include "tegula/ops/math.h"

namespace tegula {

namespace {

using namespace setting;  // NOLINT(google-build-using-namespace)
constexpr Setting kParallel =
    Setting::on("use_parallel_residual", "parallel-residual",
                "Attention and feed-forward layer side by side, or one behind the other");

Var gelu_of(Var x) { return gelu_erf(x); }

Decoder decoder(const ModelConfig& m) {
  return {.norm = NormKind::kLayer,
          .has_norm_bias = true,
          .is_parallel = m.is_on(kParallel),
          .fused_qkv = FusedQkv::kByHead,
          .has_qkv_bias = m.has_bias,
          .has_out_bias = m.has_bias,
          .has_ffn_bias = true,
          .is_gated = false,
          .activation = gelu_of,
          .names = {.stem = "gpt_neox.",
                    .final_norm = "final_layer_norm",
                    .attention = "attention.",
                    .qkv = "query_key_value",
                    .out = "dense",
                    .up = "dense_h_to_4h",
                    .down = "dense_4h_to_h"}};
}

Status resolve(ModelConfig& m) {
  if (m.d_ff == 0) m.d_ff = 4 * m.d_model;
  TEGULA_TRY(resolve_rotary(m));
  if (m.n_kv_heads != m.n_heads || m.head_dim * m.n_heads != m.d_model)
    return invalid_argument(
        "gpt_neox has n_kv_heads = n_heads and head_dim = d_model / n_heads: "
        "use --model llama for grouped heads");
  return {};
}

constexpr auto kFields = with_sizes({{&kContext, "max_position_embeddings", 2048},
                                     {&kNormEps, "layer_norm_eps", 1e-5, 1e-5},
                                     {&kRopeTheta, "rotary_emb_base", 1e4, 1e4, kNestedTheta},
                                     {&kRotaryShare, "rotary_pct", 0.25, 0.25, kNestedShare},
                                     {&kRopeScaling, ""},
                                     {&kDropout, "hidden_dropout attention_dropout", 0},
                                     {&kTied, "tie_word_embeddings", false, false},
                                     {&kBias, "attention_bias", true},
                                     {&kParallel, "use_parallel_residual", true, true}});
constexpr FixedKey kFixed[] = {{"hidden_act", R"("gelu")", true}};
constexpr Cut kCuts[] = {{"query_key_value.weight", 0, &kHeads},
                         {"query_key_value.bias", 0, &kHeads},
                         {"attention.dense.weight", 1, &kHeads},
                         {"dense_h_to_4h.weight", 0},
                         {"dense_h_to_4h.bias", 0},
                         {"dense_4h_to_h.weight", 1},
                         {"embed_in.weight", 0},
                         {"embed_out.weight", 0}};

}  // namespace

constinit const ModelDef gpt_neox_model = decoder_family({
    .name = "gpt_neox",
    .doc = "GPT-NeoX: parallel layers, a quarter of each head turned",
    .decoder = decoder,
    .fields = kFields,
    .resolve = resolve,
    .hf_class = "GPTNeoXForCausalLM",
    .fixed = kFixed,
    .names = {.table = "gpt_neox.embed_in.weight",
              .head = "embed_out.weight",
              .other_head = "lm_head.weight",
              .ignored = ".attention.bias .attention.masked_bias .rotary_emb.inv_freq"},
    .cuts = kCuts,
});

}  // namespace tegula
