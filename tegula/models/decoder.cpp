// A decoder of choices: where the norms stand, the activation, and how positions come in.
// Post-norm, ReLU and sinusoids are the block of "Attention is all you need". [Vaswani et al. 2017]
#include "tegula/models/decoder.h"

#include <cmath>

#include "tegula/models/table.h"
#include "tegula/ops/embedding.h"
#include "tegula/ops/math.h"
#include "tegula/ops/rope.h"

namespace tegula {

namespace {

using namespace setting;  // NOLINT(google-build-using-namespace)
constexpr Setting kNorm = Setting::text(
    "norm", "norm", "Layer norms before a layer, or after its sum with what went in", "pre|post");
constexpr Setting kActivation =
    Setting::text("activation", "activation", "Of the feed-forward layer", "relu|gelu|swiglu");
constexpr Setting kPositions = Setting::text(
    "positions", "positions",
    "A learned table, sinusoids beside a scaled embedding, or turned queries and keys",
    "learned|sinusoid|rope");

Var relu_of(Var x) { return relu(x); }
Var gelu_of(Var x) { return gelu(x); }

Var add_learned(Context& c, Var tokens, Var x) {
  const Var table =
      c.weight("model.embed_positions.weight", Shape{c.config.max_seqlen, c.config.d_model});
  return x + embedding(table, c.positions(tokens));
}

// sin and cos of position · 10000^(-2i/d) as elements 2i and 2i + 1: the pair (0, 1) turned back by
// that angle. [Vaswani et al. 2017, section 3.5]
Var add_sinusoid(Context& c, Var tokens, Var x) {
  const int64_t d = c.config.d_model;
  const Var at = c.positions(tokens);
  const Dim batch = at.rank() == 2 ? at.dim(0) : Dim(1), n = x.dim(1);
  const Var pairs = broadcast(iota(c.b, Shape{2}, 0, x.dtype()), Shape{batch, n, 1, d / 2, 2});
  const Var waves = rope(reshape(pairs, Shape{batch, n, 1, d}), neg(at), 10000, true);
  return x + reshape(waves, Shape{batch, n, d});
}

Decoder decoder(const ModelConfig& m) {
  const std::string activation = m.text(kActivation), positions = m.text(kPositions);
  Decoder d = {.norm = NormKind::kLayer,
               .norms = m.text(kNorm) == "post" ? NormPlace::kPost : NormPlace::kPre,
               .has_norm_bias = m.has_bias,
               .has_qkv_bias = m.has_bias,
               .has_out_bias = m.has_bias,
               .has_ffn_bias = m.has_bias,
               .is_gated = activation == "swiglu"};
  if (!d.is_gated) d.activation = activation == "relu" ? relu_of : gelu_of;
  if (positions == "learned") d.add_positions = add_learned;
  if (positions == "sinusoid") {
    d.add_positions = add_sinusoid;
    d.embedding_scale = std::sqrt(static_cast<double>(m.d_model));
  }
  return d;
}

Status resolve(ModelConfig& m) {
  if (m.d_ff == 0 && m.text(kActivation) != "swiglu") m.d_ff = 4 * m.d_model;
  if (m.text(kPositions) == "sinusoid" && m.d_model % 2 != 0)
    return invalid_argument(
        cat("d_model ", m.d_model, " is odd: sinusoids come in pairs, a sine and a cosine"));
  return m.text(kPositions) == "rope" ? resolve_rotary(m) : resolve_decoder(m);
}

constexpr Field kFields[] = {{&kVocabSize, "vocab_size"},
                             {&kWidth, "hidden_size"},
                             {&kFfWidth, "intermediate_size", 0},
                             {&kLayers, "num_hidden_layers"},
                             {&kHeads, "num_attention_heads"},
                             {&kKvHeads, "num_key_value_heads", 0},
                             {&kHeadDim, "head_dim", 0},
                             {&kContext, "max_position_embeddings"},
                             {&kNormEps, "norm_eps", 1e-5, 1e-5},
                             {&kRopeTheta, "rope_theta", 1e4, 1e4},
                             {&kDropout, "dropout", 0},
                             {&kTied, "tie_word_embeddings", true, true},
                             {&kBias, "bias", false},
                             {&kNorm, "norm", "pre", "pre"},
                             {&kActivation, "hidden_act", "gelu", "gelu"},
                             {&kPositions, "positions", "learned", "learned"}};

}  // namespace

constinit const ModelDef decoder_model = decoder_family({
    .name = "decoder",
    .doc = "A decoder of choices: --norm, --activation, --positions",
    .decoder = decoder,
    .fields = kFields,
    .resolve = resolve,
    .hf_type = "tegula-decoder",
});

}  // namespace tegula
