// Every initial weight follows the law that its family declares: here a second list of those laws,
// by name, against mean, deviation and shape of what init_weight gives.
#include "tegula/models/init.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tegula/base/philox.h"
#include "tegula/ir/host_tensor.h"

namespace tegula {
namespace {

constexpr double kLayers = 3;
constexpr int64_t kModel = 64;

struct Law {
  std::string_view family, part;  // of the weight's name; the first that fits counts
  double mean, stddev;
};
// GPT-2 (Radford et al. 2019, §2.3): N(0, 0.02), what ends a residual branch 1/√(2·layers) of that.
const double kBranch = 0.02 / std::sqrt(2 * kLayers), kLstm = 1 / std::sqrt(double{kModel});
const Law kLaws[] = {
    {"gpt2", "c_proj.weight", 0, kBranch},
    {"gpt2", ".bias", 0, 0},
    {"gpt2", "ln_", 1, 0},
    {"gpt2", "", 0, 0.02},
    {"llama", ".bias", 0, 0},
    {"llama", "o_proj.weight", 0, kBranch},
    {"llama", "down_proj.weight", 0, kBranch},
    {"llama", "norm", 1, 0},
    {"llama", "", 0, 0.02},
    {"moe", ".bias", 0, 0},
    {"moe", "o_proj.weight", 0, kBranch},
    {"moe", "experts.w2", 0, kBranch},
    {"moe", "norm", 1, 0},
    {"moe", "", 0, 0.02},
    {"decoder", ".bias", 0, 0},
    {"decoder", "o_proj.weight", 0, kBranch},
    {"decoder", "down_proj.weight", 0, kBranch},
    {"decoder", "norm", 1, 0},
    {"decoder", "", 0, 0.02},
    {"gemma2", "o_proj.weight", 0, kBranch},
    {"gemma2", "down_proj.weight", 0, kBranch},
    {"gemma2", "norm", 0, 0},
    {"gemma2", "", 0, 0.02},
    {"mistral", "o_proj.weight", 0, kBranch},
    {"mistral", "down_proj.weight", 0, kBranch},
    {"mistral", "norm", 1, 0},
    {"mistral", "", 0, 0.02},
    {"qwen2", ".bias", 0, 0},
    {"qwen2", "o_proj.weight", 0, kBranch},
    {"qwen2", "down_proj.weight", 0, kBranch},
    {"qwen2", "norm", 1, 0},
    {"qwen2", "", 0, 0.02},
    {"mlp", "bias", 0, 0},
    {"mlp", "", 0, 0.02},
    {"lstm", "bias", 0, 0},
    {"lstm", "head", 0, 0.02},
    {"lstm", "", 0, kLstm},
};

// Families that the list does not know are held to what they declare themselves.
Law law_of(std::string_view family, const WeightSpec& w) {
  for (const Law& law : kLaws)
    if (law.family == family && w.name.find(law.part) != std::string_view::npos) return law;
  EXPECT_EQ(std::ranges::count(kLaws, family, &Law::family), 0) << "its law is not in this test";
  return {family, "", w.init == Init::kOnes ? 1.0 : 0.0, w.init == Init::kNormal ? w.stddev : 0};
}

TEST(Init, EveryTensorFollowsItsLaw) {
  for (const ModelDef* model : all_models()) {
    ModelConfig m;
    m.type = model->name, m.vocab_size = 96, m.n_layers = static_cast<int64_t>(kLayers);
    m.n_heads = 4, m.d_model = kModel, m.max_seqlen = 32, m.n_experts = 4;
    m.has_bias = has_setting(*model, setting::kBias), m.tie_embeddings = false;
    const Status resolved = m.resolve();
    ASSERT_TRUE(resolved.ok()) << resolved.error().to_string();
    const auto weights = model_weights(m);
    ASSERT_TRUE(weights.ok()) << weights.error().to_string();
    std::vector<std::vector<std::byte>> drawn;
    for (const WeightSpec& w : *weights) {
      SCOPED_TRACE(cat(model->name, " ", w.name));
      const Law law = law_of(model->name, w);
      HostTensor x(w.type);
      init_weight(w, 7, x.ref());
      const auto n = static_cast<double>(x.numel());
      double sum = 0, squares = 0, cubes = 0, largest = 0;
      for (int64_t i = 0; i < x.numel(); ++i) sum += x.at(i);
      const double mean = sum / n;
      for (int64_t i = 0; i < x.numel(); ++i) {
        const double c = x.at(i) - mean;
        squares += c * c, cubes += c * c * c, largest = std::max(largest, std::abs(c));
      }
      const double stddev = std::sqrt(squares / n);
      // Five deviations of the mean's, of the deviation's and of the skewness's own estimate.
      EXPECT_NEAR(mean, law.mean, 5 * law.stddev / std::sqrt(n));
      EXPECT_NEAR(stddev, law.stddev, 5 * law.stddev / std::sqrt(2 * n));
      if (law.stddev > 0) {
        EXPECT_LT(std::abs(cubes / n / std::pow(stddev, 3)), 5 * std::sqrt(6 / n));
        EXPECT_LT(largest, 6.5 * law.stddev);
        EXPECT_GT(largest, 2 * law.stddev);
        EXPECT_EQ(std::count(drawn.begin(), drawn.end(), x.bytes), 0) << "drawn twice";
        drawn.push_back(x.bytes);
      }
    }
  }
}

// A value is a function of its index, however many threads share the tensor: one of an odd number
// of values, of several chunks.
TEST(Init, ThreadsGiveTheSameBits) {
  const WeightSpec w{"w", {DType::kF32, {333, 301}}};
  HostTensor alone(w.type), shared(w.type), head({DType::kF32, {3, 301}});
  init_weight(w, 1, alone.ref());
  init_weight(w, 1, head.ref());
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    std::fill(shared.bytes.begin(), shared.bytes.end(), std::byte{0xff});
    init_weight(w, 1, shared.ref(), &pool);
    EXPECT_EQ(shared.bytes, alone.bytes) << threads << " threads";
  }
  EXPECT_TRUE(std::equal(head.bytes.begin(), head.bytes.end(), alone.bytes.begin()));
  for (int64_t i : {0, 1, 2, 16383, 16384, 100232}) {
    const auto k = static_cast<uint64_t>(2 * i), stream = uint64_t{0xaf63ea4c86020456};
    const double u = (philox_bits(1, stream, k) + 0.5) * 0x1p-32;
    const double v = philox_bits(1, stream, k + 1) * 0x1p-32;
    EXPECT_EQ(alone.at(i),
              static_cast<float>(w.stddev * std::sqrt(-2 * std::log(u)) * std::cos(2 * M_PI * v)))
        << "value " << i;
  }
}

// Weights of a layer are not those of another, and another seed gives others.
TEST(Init, NamesAndSeedsAreStreams) {
  WeightSpec a{"layers.0.w", {DType::kF32, {40, 50}}}, b = a;
  b.name = "layers.1.w";
  HostTensor x(a.type), y(a.type), z(a.type), again(a.type);
  init_weight(a, 1, x.ref()), init_weight(b, 1, y.ref()), init_weight(a, 2, z.ref());
  init_weight(a, 1, again.ref());
  EXPECT_EQ(x.bytes, again.bytes);
  const auto correlation = [](const HostTensor& p, const HostTensor& q) {
    double sum = 0;
    for (int64_t i = 0; i < p.numel(); ++i) sum += p.at(i) * q.at(i);
    return sum / static_cast<double>(p.numel()) / (0.02 * 0.02);
  };
  EXPECT_LT(std::abs(correlation(x, y)), 5 / std::sqrt(2000));
  EXPECT_LT(std::abs(correlation(x, z)), 5 / std::sqrt(2000));
  EXPECT_NEAR(correlation(x, x), 1, 5 * std::sqrt(2.0 / 2000));
}

}  // namespace
}  // namespace tegula
