// How many kernels a token takes: those of a layer that may be one launch are.
#include <gtest/gtest.h>

#include <map>

#include "tegula/base/str.h"
#include "tegula/kernels/device.h"
#include "tests/train/decoding.h"

namespace tegula {
namespace {

// By the kernel, of all layers.
std::map<std::string, int64_t> launches_of(const ModelConfig& config, Device& device) {
  Rank rank(device);
  Store store(rank);
  std::vector<HostTensor> inputs;
  const auto s = testing::decoding(config, rank, store, inputs);
  const Status st = s->run();
  EXPECT_TRUE(st.ok()) << st.error().to_string();
  std::map<std::string, int64_t> n;
  for (size_t i = 0; i < s->plan().steps.size(); ++i)
    if (const Step& step = s->plan().steps[i]; step.scope.starts_with("layers."))
      n[std::string(step.kernel->name)] += s->launches(i);
  return n;
}

// Queries, keys and values in one, what attention gives, gates and what they multiply in one, and
// down, of which three begin with a norm or a gate; rotations of queries and keys in one; keys and
// values put down in one. Angles once. Enough layers that memory is used again.
TEST(LaunchesOnDevice, OfATokenByLayer) {
  const auto device = open_device();
  if (!device.ok()) GTEST_SKIP() << device.error().message;
  ModelConfig c;
  c.type = "llama", c.vocab_size = 64, c.n_layers = 6, c.n_heads = 9, c.n_kv_heads = 3;
  c.d_model = 144, c.d_ff = 256, c.max_seqlen = 512;
  ASSERT_TRUE(c.resolve().ok());
  const int64_t n = c.n_layers;
  ::setenv("TEGULA_CUDA_PERSISTENT", "0", 1);
  const std::map<std::string, int64_t> of = launches_of(c, **device);
  ::unsetenv("TEGULA_CUDA_PERSISTENT");
  EXPECT_EQ(of, (std::map<std::string, int64_t>{{"matvec", 4 * n},
                                                {"fused_cuda", n + 1},
                                                {"scatter_cuda", n},
                                                {"attention_decode", n},
                                                {"concat_cuda", 0}}));
}

// One persistent kernel for all layers and the head: the first norm's step has it.
TEST(LaunchesOnDevice, OfATokenInOne) {
  const auto device = open_device();
  if (!device.ok()) GTEST_SKIP() << device.error().message;
  if ((*device)->target().capability < 90) GTEST_SKIP() << "persistent kernels are for sm_90";
  const ModelConfig c = testing::small_llama();
  const std::map<std::string, int64_t> of = launches_of(c, **device);
  Rank rank(**device);
  Store store(rank);
  std::vector<HostTensor> inputs;
  const auto s = testing::decoding(c, rank, store, inputs);
  ASSERT_TRUE(s->run().ok());
  double all = 0;
  for (size_t i = 0; i < s->plan().steps.size(); ++i) {
    const DeviceSteps::Share share = s->shares().value()[i];
    all += share.share;
    EXPECT_GE(share.share, 0) << i;
    if (share.of >= 0) {
      EXPECT_EQ(s->launches(static_cast<size_t>(share.of)), 1) << i;
    }
  }
  EXPECT_NEAR(all, 1, 1e-9);
  EXPECT_EQ(of, (std::map<std::string, int64_t>{{"matvec", 0},
                                                {"fused_cuda", 1},
                                                {"scatter_cuda", 0},
                                                {"attention_decode", 0},
                                                {"concat_cuda", 0}}));
}

}  // namespace
}  // namespace tegula
