// The planner's FLOPs of a token against the ops of the graph that would run: all products, and
// attention pair by pair.
#include <gtest/gtest.h>

#include <cmath>

#include "tegula/models/decoder.h"
#include "tegula/models/model.h"
#include "tegula/ops/attention.h"
#include "tegula/ops/table.h"
#include "tegula/planner/layer_work.h"
#include "tegula/planner/model_config.h"

namespace tegula::planner {
namespace {

struct GraphFlops {
  int64_t products = 0, pairs_4d = 0;
};

// FLOPs of the logits of `batch` sequences. Experts have room for an even load, as they are priced.
GraphFlops graph_flops(ModelConfig config, int64_t batch, int64_t seqlen) {
  config.capacity_factor = 1, config.balance_loss = 0;
  const ModelDef& model = **find_model(config.type);
  Module module;
  Builder b(module, "model");
  Context c(b, config);
  c.is_training = true;
  b.result("logits", model_logits(c, model, b.param("tokens", {DType::kI32, {batch, seqlen}})));
  const auto f = b.finish();
  EXPECT_TRUE(f.ok()) << f.error().to_string();
  GraphFlops flops;
  for (const Node& n : f->nodes) {
    const auto in = f->input_types(n), out = f->output_types(n);
    const OpCall call{n.op, &n.attrs, in, out, &module, n.regions};
    if (n.op == &dot_op) {
      // Without the sums that join the shards of mode exact.
      const int64_t joins = n.attrs.get_or<int64_t>("k_shards", 1) - 1;
      flops.products += flops_of(call) - joins * out[0].shape.numel();
    }
    if (n.op == &attention_op) {
      const Shape& q = in[0].shape;  // [b s h d]
      const int64_t d = q[3].bound(), rows = q[0].bound() * q[1].bound() * q[2].bound();
      // A pair: 2d and a scale for its score (three more for a cap), four for softmax, 2d. A row:
      // three for its logarithm, d divisions.
      const int64_t of_pair = 4 * d + 5 + (n.attrs.has("softcap") ? 3 : 0);
      const int64_t of_pairs = flops_of(call) - rows * (3 + d);
      EXPECT_EQ(of_pairs % of_pair, 0);
      flops.pairs_4d += of_pairs / of_pair * 4 * d;
    }
  }
  return flops;
}

void expect_equal(const ModelSpec& spec, const ModelConfig& config, int64_t batch, int64_t seqlen) {
  SCOPED_TRACE(cat(spec.name, " ", config.type, ", ", batch, " sequences of ", seqlen));
  const GraphFlops graph = graph_flops(config, batch, seqlen);
  const TokenFlops token = token_flops(spec, static_cast<double>(seqlen));
  const double tokens = static_cast<double>(batch * seqlen);
  EXPECT_EQ(static_cast<double>(graph.products), (token.layers + token.head) * tokens);
  // The mean number of keys is a fraction, so this one is rounded.
  EXPECT_NEAR(static_cast<double>(graph.pairs_4d), token.causal_attention * tokens,
              1e-12 * static_cast<double>(graph.pairs_4d));
}

TEST(GraphFlops, PresetsOfEveryFamilyThatIsBuilt) {
  for (const char* name : {"gpt2", "gpt2-xl", "gpt3-175b", "llama2-7b", "llama2-70b", "llama3-405b",
                           "mistral-7b", "qwen2-7b", "mixtral-8x7b", "mlp"}) {
    const ModelSpec spec = find_model_preset(name)->model;
    const auto config = model_config(spec);
    ASSERT_TRUE(config.ok());
    for (const int64_t seqlen : {64, 1024}) expect_equal(spec, *config, 2, seqlen);
  }
}

TEST(GraphFlops, AWindowIsCountedKeyByKey) {
  ModelSpec spec = find_model_preset("mistral-7b")->model;
  spec.n_layers = spec.n_window_layers = 2;
  for (const int64_t window : {1, 5, 64, 100}) {
    spec.window = window;
    expect_equal(spec, *model_config(spec), 1, 64);
  }
}

TEST(GraphFlops, ToySizesOfAllDecoders) {
  for (const char* family :
       {"gpt2", "llama", "qwen2", "mistral", "gemma2", "moe", "decoder", "bert"}) {
    ModelConfig c;
    c.type = family, c.vocab_size = 97, c.n_layers = 3, c.n_heads = 4, c.d_model = 32;
    c.max_seqlen = 48, c.n_experts = 4, c.n_experts_per_token = 2;
    ASSERT_TRUE(c.resolve().ok()) << family;
    const ModelSpec spec = model_spec(c, family);
    EXPECT_EQ(count_params(spec)->total, parameter_count(*model_weights(c))) << family;
    expect_equal(spec, c, 2, 48);
  }
}

}  // namespace
}  // namespace tegula::planner
