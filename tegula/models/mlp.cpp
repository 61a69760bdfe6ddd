// A language model without attention: each token is predicted from a fixed window of the last ones.
// [Bengio et al. 2003]
#include "tegula/models/table.h"
#include "tegula/ops/embedding.h"
#include "tegula/ops/math.h"

namespace tegula {

namespace {

constexpr int64_t kWindow = 8;

Var table(Context& c) {
  return c.weight("embed.weight", Shape{c.config.vocab_size, c.config.d_model});
}

// Row t of the result is x[t - back], zeros before the beginning.
Var delayed(Var x, int64_t back) {
  const Dim seqlen = x.dim(1);
  if (!seqlen.is_const())
    return x.builder().fail(unsupported("mlp: needs a constant sequence length"));
  if (back == 0) return x;
  if (back >= seqlen.bound()) return zeros_like(x);
  return pad(slice(x, 1, 0, seqlen.bound() - back), 1, back, 0, 0, 0.0);
}

Var hidden(Context& c, Var tokens) {
  const ModelConfig& m = c.config;
  const Var e = embedding(table(c), tokens);
  Var x;
  for (int64_t back = 0; back < kWindow; ++back) {
    const Var w = c.weight(cat("window.", back, ".weight"), Shape{m.d_model, m.d_ff});
    const Var part = matmul(delayed(e, back), w);
    x = x.valid() ? x + part : part;
  }
  x = gelu(x + c.weight("window.bias", Shape{m.d_ff}, Init::kZeros, 0, false));
  for (int64_t i = 1; i < m.n_layers; ++i) {
    const Var w = c.weight(cat("layers.", i, ".weight"), Shape{m.d_ff, m.d_ff});
    const Var bias = c.weight(cat("layers.", i, ".bias"), Shape{m.d_ff}, Init::kZeros, 0, false);
    x = c.dropout(gelu(matmul(x, w) + bias)) + x;
  }
  return matmul(x, c.weight("out.weight", Shape{m.d_ff, m.d_model}));
}

}  // namespace

constinit const ModelDef mlp_model = {"mlp", "Window of 8 tokens through dense layers", hidden,
                                      table};

}  // namespace tegula
