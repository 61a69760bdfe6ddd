// Tests what the planner says of serving beside the very functions that `tegula generate` runs:
// their products, caches and weights exactly, and the keys that attention really reads, counted by
// its kernel.
#include <gtest/gtest.h>

#include "tegula/models/model.h"
#include "tegula/ops/table.h"
#include "tegula/planner/model_config.h"
#include "tegula/planner/serving.h"
#include "tegula/runtime/compile.h"
#include "tegula/runtime/measure.h"
#include "tegula/serve/runner.h"

namespace tegula::planner {
namespace {

constexpr int64_t kContext = 128;

ModelConfig toy(const char* family) {
  ModelConfig c;
  c.type = family, c.vocab_size = 96, c.n_layers = 3, c.n_heads = 4, c.d_model = 64;
  c.max_seqlen = kContext;
  if (std::string_view(family) != "gpt2") c.n_kv_heads = 2;
  EXPECT_TRUE(c.resolve().ok());
  return c;
}

struct Decoding {
  std::shared_ptr<Module> module = std::make_shared<Module>();
  FuncId id = kNone;
  // One token of each of `texts`, or `tokens` of one text.
  Decoding(const ModelConfig& c, int64_t tokens, int64_t texts) {
    DecodingShape shape;
    shape.tokens = tokens, shape.texts = texts, shape.is_one_each = tokens == texts && texts > 1;
    shape.pages.count = texts * kContext / shape.pages.size;
    const auto built = build_decoding(*module, c, "decode", shape);
    EXPECT_TRUE(built.ok()) << built.error().message;
    id = *built;
  }
  const Function& f() const { return (*module)[id]; }
};

int64_t product_flops(const Decoding& d) {
  int64_t sum = 0;
  for (const Node& n : d.f().nodes) {
    if (n.op != &dot_op) continue;
    const auto in = d.f().input_types(n), out = d.f().output_types(n);
    const OpCall call{n.op, &n.attrs, in, out, d.module.get(), n.regions};
    sum += flops_of(call) - (n.attrs.get_or<int64_t>("k_shards", 1) - 1) * out[0].shape.numel();
  }
  return sum;
}

StepSeconds planned(const ModelSpec& m, double batch, double tokens, double keys) {
  const ClusterSpec c = *parse_cluster("H100");
  return serve_step(m, c, {64, 8, 0, Number::kF32}, {}, batch, tokens, keys);
}

constexpr const char* kFamilies[] = {"gpt2", "llama", "mistral", "qwen2"};

TEST(ServeAsGenerate, ProductsOfPrefillAndDecoding) {
  for (const char* family : kFamilies) {
    const ModelConfig c = toy(family);
    const ModelSpec m = model_spec(c, family);
    for (const int64_t texts : {2, 4, 16})
      EXPECT_EQ(planned(m, static_cast<double>(texts), 1, 32).products,
                static_cast<double>(product_flops(Decoding(c, texts, texts))))
          << family << ", decoding " << texts;
    for (const int64_t tokens : {16, 64})
      EXPECT_EQ(planned(m, 1, static_cast<double>(tokens), 32).products,
                static_cast<double>(product_flops(Decoding(c, tokens, 1))))
          << family << ", a prompt of " << tokens;
  }
}

TEST(ServeAsGenerate, CachesAndWeights) {
  for (const char* family : kFamilies) {
    const ModelConfig c = toy(family);
    const ModelSpec m = model_spec(c, family);
    const Decoding d(c, 4, 4);
    double caches = 0, weights = 0;
    for (const Param& p : d.f().params) {
      const double bytes = static_cast<double>(d.f().type(p.value).bytes());
      if (p.name.starts_with("cache.")) caches += bytes;
      if (p.role == Role::kWeight && !p.name.starts_with("cache.")) weights += bytes;
    }
    EXPECT_EQ(caches, 4 * kContext * kv_bytes_per_token(m, 4)) << family;
    EXPECT_EQ(weights, 4.0 * static_cast<double>(count_params(m)->total)) << family;
  }
}

// A key more costs each head of each layer and text 4d operations by the convention, which the
// kernel counts with 5 more for its softmax.
TEST(ServeAsGenerate, KeysThatAttentionReads) {
  for (const char* family : {"gpt2", "llama"}) {
    const ModelConfig c = toy(family);
    const ModelSpec m = model_spec(c, family);
    const Decoding d(c, 4, 4);
    CompileOptions o;
    o.passes.pass.is_inference = true;
    const auto compiled = compile(d.module, d.id, o);
    ASSERT_TRUE(compiled.ok()) << compiled.error().message;
    Rank rank(1);
    auto run = Measurement::create(compiled->plan, rank, {.repeats = 1, .sample_ms = 0.1});
    ASSERT_TRUE(run.ok()) << run.error().message;
    const auto counted = [&](int32_t keys) {
      for (const TensorRef& t : run->values("seqlens_k"))
        std::fill_n(t.as<int32_t>(), t.numel(), keys);
      for (const TensorRef& t : run->values("positions"))
        std::fill_n(t.as<int64_t>(), t.numel(), int64_t{keys} - 1);
      return static_cast<double>(run->run()->math_flops);
    };
    const double few = counted(17), many = counted(101);
    EXPECT_GT(many, few);
    const double d_head = static_cast<double>(m.head_dim);
    const double by_plan = planned(m, 4, 1, 101).attention - planned(m, 4, 1, 17).attention;
    EXPECT_EQ((many - few) * 4 * d_head / (4 * d_head + 5), by_plan) << family;
  }
}

}  // namespace
}  // namespace tegula::planner
