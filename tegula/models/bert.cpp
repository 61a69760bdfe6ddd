// BERT and MiniLM: an encoder. Post-norm layers whose attention sees both directions, learned
// positions and a type of each token, GELU. Texts stand alone, so that all their tokens are of
// type 0. It learns to find masked tokens (train/masking.h), with a head that files of vectors
// leave out: norm(gelu(W h + b)), a product with the embedding, a bias.
// [Devlin et al. 2019; Wang et al. 2020]
#include "tegula/models/decoder.h"
#include "tegula/models/table.h"
#include "tegula/ops/embedding.h"
#include "tegula/ops/math.h"
#include "tegula/ops/norm.h"

namespace tegula {

namespace {

using namespace setting;  // NOLINT(google-build-using-namespace)
constexpr Setting kTypes = Setting::size("type_vocab_size", "", "", 1, 1 << 20);

Var gelu_of(Var x) { return gelu_erf(x); }

// norm(word + position + type).
Var add_positions(Context& c, Var tokens, Var x) {
  const ModelConfig& m = c.config;
  const Shape width = {m.d_model};
  const auto at = [](std::string_view name) { return cat("bert.embeddings.", name); };
  const Var positions = c.weight(at("position_embeddings.weight"), Shape{m.max_seqlen, m.d_model});
  const Var types = c.weight(at("token_type_embeddings.weight"), Shape{m.size(kTypes), m.d_model});
  Var places = c.positions(tokens);
  if (tokens.dim(1).bound() > m.max_seqlen)  // a row's end, which has no tokens
    places = min(places, static_cast<double>(m.max_seqlen - 1));
  x = x + embedding(positions, places) + reshape(slice(types, 0, 0, 1), width);
  return layer_norm(x, c.weight(at("LayerNorm.weight"), width, Init::kOnes, 0, false),
                    c.weight(at("LayerNorm.bias"), width, Init::kZeros, 0, false), m.norm_eps);
}

constexpr std::string_view kHead = "cls.predictions.";

Var transform(Context& c, Var h) {
  const std::string at = cat(kHead, "transform.");
  const Shape width = {c.config.d_model};
  h = gelu_erf(decoder_linear(c, h, at + "dense", c.config.d_model, 0.02, true));
  return layer_norm(h, c.weight(at + "LayerNorm.weight", width, Init::kOnes, 0, false),
                    c.weight(at + "LayerNorm.bias", width, Init::kZeros, 0, false),
                    c.config.norm_eps);
}

// Where the head is a product of its own, so is its bias.
Var bias(Context& c) {
  return c.weight(cat(kHead, c.config.is_tied() ? "bias" : "decoder.bias"),
                  Shape{c.config.vocab_size}, Init::kZeros, 0, false);
}

Decoder decoder(const ModelConfig&) {
  return {.norm = NormKind::kLayer,
          .norms = NormPlace::kPost,
          .has_norm_bias = true,
          .sees_ahead = true,
          .has_qkv_bias = true,
          .has_out_bias = true,
          .has_ffn_bias = true,
          .is_gated = false,
          .activation = gelu_of,
          .add_positions = add_positions,
          .names = {.stem = "bert.encoder.",
                    .layers = "layer.",
                    .attention = "attention.",
                    .out = "output.dense",
                    .q = "self.query",
                    .k = "self.key",
                    .v = "self.value",
                    .ffn = "",
                    .up = "intermediate.dense",
                    .down = "output.dense",
                    .attention_norm = "attention.output.LayerNorm",
                    .behind_ffn = "output.LayerNorm"}};
}

Status resolve(ModelConfig& m) {
  if (m.d_ff == 0) m.d_ff = 4 * m.d_model;
  TEGULA_TRY(resolve_decoder(m));
  if (m.n_kv_heads != m.n_heads || m.head_dim * m.n_heads != m.d_model)
    return invalid_argument("bert has n_kv_heads = n_heads and head_dim = d_model / n_heads");
  return {};
}

constexpr Field kFields[] = {{&kVocabSize, "vocab_size", 30522},
                             {&kWidth, "hidden_size", 768},
                             {&kFfWidth, "intermediate_size", 3072},
                             {&kLayers, "num_hidden_layers", 12},
                             {&kHeads, "num_attention_heads", 12},
                             {&kContext, "max_position_embeddings", 512},
                             {&kTypes, "type_vocab_size", 2, 2},
                             {&kNormEps, "layer_norm_eps", 1e-12, 1e-12},
                             {&kDropout, "hidden_dropout_prob attention_probs_dropout_prob", 0.1},
                             {&kTied, "tie_word_embeddings", true, true}};
constexpr FixedKey kFixed[] = {{"hidden_act", R"("gelu")", true},
                               {"position_embedding_type", R"("absolute"|null)"},
                               {"is_decoder", "false|null"},
                               {"add_cross_attention", "false|null"}};

constexpr Cut kCuts[] = {{"self.query.weight", 0, &kHeads},
                         {"self.query.bias", 0, &kHeads},
                         {"self.key.weight", 0, &kHeads},
                         {"self.key.bias", 0, &kHeads},
                         {"self.value.weight", 0, &kHeads},
                         {"self.value.bias", 0, &kHeads},
                         {"attention.output.dense.weight", 1, &kHeads},
                         {"intermediate.dense.weight", 0},
                         {"intermediate.dense.bias", 0},
                         {"output.dense.weight", 1},
                         {"word_embeddings.weight", 0},
                         {"decoder.weight", 0}};

}  // namespace

constinit const ModelDef bert_model = decoder_family({
    .name = "bert",
    .doc = "BERT, MiniLM: vectors of texts, masked tokens",
    .before_head = transform,
    .head_bias = bias,
    .decoder = decoder,
    .fields = kFields,
    .resolve = resolve,
    .hf_class = "BertForMaskedLM",
    .fixed = kFixed,
    // Tensors on the last layer in other uses of it: a pooler, which text follows which; and the
    // twin of the head's bias.
    .names = {.table = "bert.embeddings.word_embeddings.weight",
              .head = "cls.predictions.decoder.weight",
              .aliases = "LayerNorm.weight=LayerNorm.gamma LayerNorm.bias=LayerNorm.beta "
                         "cls.predictions.bias=cls.predictions.decoder.bias",
              .optional = kHead,
              .prefix = "bert.",
              .ignored = "embeddings.position_ids pooler.dense.weight pooler.dense.bias "
                         "cls.predictions.bias cls.predictions.decoder.bias "
                         "cls.seq_relationship.weight cls.seq_relationship.bias"},
    .cuts = kCuts,
    .sees_ahead = true,
});

}  // namespace tegula
