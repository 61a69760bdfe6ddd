// A language model without attention: each token is predicted from a fixed window of the last ones.
// [Bengio et al. 2003]
#include "tegula/models/table.h"
#include "tegula/ops/dynamic_slice.h"
#include "tegula/ops/embedding.h"
#include "tegula/ops/math.h"

namespace tegula {

namespace {

constexpr int64_t kWindow = 8;

Var table(Context& c) {
  return c.weight("embed.weight", Shape{c.config.vocab_size, c.config.d_model});
}

Var embed(Context& c, Var tokens) {
  const Scope scope(c.b, "embedding");
  return embedding(table(c), tokens);
}

// The first layer: [b s d] -> [b s d_ff], of each token and the window before it.
Var first(Context& c, Var e) {
  const Scope scope(c.b, "layers.0");
  const ModelConfig& m = c.config;
  // The embeddings with those of the tokens before this call in front: zeros at the beginning.
  const Var before = c.carried("window", Shape{e.dim(0), kWindow - 1, m.d_model});
  const Var all[] = {before, e};
  const Var window = concat(all, 1);
  const Var zero = constant(c.b, 0, DType::kI64);
  const Var last[] = {zero, extent(e, 1, DType::kI64), zero};
  c.carry("window", dynamic_slice(window, last, before.shape()));
  Var x;
  for (int64_t back = 0; back < kWindow; ++back) {
    const Var w = c.weight(cat("window.", back, ".weight"), Shape{m.d_model, m.d_ff});
    const Var part = matmul(slice(window, 1, kWindow - 1 - back, e.dim(1)), w);
    x = x.valid() ? x + part : part;
  }
  return gelu(x + c.weight("window.bias", Shape{m.d_ff}, Init::kZeros, 0, false));
}

Var hidden(Context& c, Var tokens) {
  const ModelConfig& m = c.config;
  Var x = first(c, embed(c, tokens));
  for (int64_t i = 1; i < m.n_layers; ++i) {
    const Scope scope(c.b, cat("layers.", i));
    const Var w = c.weight(cat("layers.", i, ".weight"), Shape{m.d_ff, m.d_ff});
    const Var bias = c.weight(cat("layers.", i, ".bias"), Shape{m.d_ff}, Init::kZeros, 0, false);
    x = c.dropout(gelu(matmul(x, w) + bias)) + x;
  }
  const Scope scope(c.b, "head");
  return matmul(x, c.weight("out.weight", Shape{m.d_ff, m.d_model}));
}

Status resolve(ModelConfig& m) {
  if (m.d_ff == 0) m.d_ff = 4 * m.d_model;
  return {};
}

using namespace setting;  // NOLINT(google-build-using-namespace)
constexpr Field kFields[] = {
    {&kVocabSize, "vocab_size"},         {&kWidth, "hidden_size"},
    {&kLayers, "num_hidden_layers"},     {&kContext, "max_position_embeddings"},
    {&kFfWidth, "intermediate_size", 0}, {&kDropout, "dropout", 0}};
constexpr FixedKey kFixed[] = {{"hidden_act", R"("gelu_new"|"gelu_pytorch_tanh")", true}};
constexpr Cut kCuts[] = {{"out.weight", 0}, {"embed.weight", 0}};

}  // namespace

constinit const ModelDef mlp_model = {
    .name = "mlp",
    .doc = "Window of 8 tokens through dense layers",
    .hidden = hidden,
    .head = table,
    .fields = kFields,
    .resolve = resolve,
    .hf_type = "tegula-mlp",
    .fixed = kFixed,
    .names = {.table = "embed.weight"},
    .cuts = kCuts,
    .has_state = true,
};

}  // namespace tegula
