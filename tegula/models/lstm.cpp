// A recurrent language model: embedding, layers of LSTM over time, tied head.
// [Hochreiter and Schmidhuber 1997; Zaremba et al. 2014]
#include <cmath>

#include "tegula/models/table.h"
#include "tegula/ops/embedding.h"
#include "tegula/ops/layers.h"

namespace tegula {

namespace {

// Values of the size of one in, values of the size of one out.
double stddev(const Context& c) { return 1 / std::sqrt(static_cast<double>(c.config.d_model)); }

Var table(Context& c) {
  return c.weight("embed.weight", Shape{c.config.vocab_size, c.config.d_model}, Init::kNormal,
                  stddev(c));
}

Var head(Context& c) {
  if (c.config.is_tied()) return table(c);
  return c.weight("head.weight", Shape{c.config.vocab_size, c.config.d_model});
}

// [b s d] -> [b s d]; the state goes from one call to the next when decoding.
Var layer(Context& c, Var x, const std::string& at) {
  const int64_t d = c.config.d_model;
  const LstmWeights w = {c.weight(at + "w_x", Shape{d, 4 * d}, Init::kNormal, stddev(c)),
                         c.weight(at + "w_h", Shape{d, 4 * d}, Init::kNormal, stddev(c)),
                         c.weight(at + "bias", Shape{4 * d}, Init::kZeros, 0, false)};
  const Shape state = {x.dim(0), d};
  const Recurrent r = lstm(x, w, c.carried(at + "h", state), c.carried(at + "c", state));
  c.carry(at + "h", r.h);
  c.carry(at + "c", r.c);
  return r.y;
}

Var hidden(Context& c, Var tokens) {
  Var x;
  {
    const Scope scope(c.b, "embedding");
    x = c.dropout(embedding(table(c), tokens));
  }
  for (int64_t i = 0; i < c.config.n_layers; ++i) {
    const Scope scope(c.b, cat("layers.", i));
    x = c.dropout(layer(c, x, cat("layers.", i, ".")));
  }
  return x;
}

using namespace setting;  // NOLINT(google-build-using-namespace)
constexpr Field kFields[] = {
    {&kVocabSize, "vocab_size"},     {&kWidth, "hidden_size"},
    {&kLayers, "num_hidden_layers"}, {&kContext, "max_position_embeddings"},
    {&kDropout, "dropout", 0},       {&kTied, "tie_word_embeddings", false, true}};
constexpr FixedKey kFixed[] = {{"hidden_act", R"("tanh")", true}};
// The four gates of a unit lie in one matrix.
constexpr Cut kCuts[] = {{"w_x", 1, nullptr, 4},
                         {"w_h", 1, nullptr, 4},
                         {"bias", 0, nullptr, 4},
                         {"embed.weight", 0},
                         {"head.weight", 0}};

}  // namespace

constinit const ModelDef lstm_model = {
    .name = "lstm",
    .doc = "Embedding, LSTM layers, tied head",
    .hidden = hidden,
    .head = head,
    .fields = kFields,
    .hf_type = "tegula-lstm",
    .fixed = kFixed,
    .names = {.table = "embed.weight", .head = "head.weight"},
    .cuts = kCuts,
    .has_state = true,
};

}  // namespace tegula
