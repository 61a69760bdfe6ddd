// FLOPs of a training step as the kernels themselves count them, in a build of the kernels for this
// test alone: those of the plan. Run with TEGULA_COUNT_FLOPS=1 and the plug-in named in
// TEGULA_CUDA_PLUGIN; skipped elsewhere.
#include <gtest/gtest.h>

#include <atomic>

#include "tegula/io/file.h"
#include "tegula/kernels/device.h"
#include "tegula/train/trainer.h"
#include "tests/common/device_count.h"
#include "tests/train/decoding.h"

namespace tegula {
namespace {

struct Family {
  const char *type, *dtype;
};

class DeviceCount : public ::testing::TestWithParam<Family> {
 protected:
  void SetUp() override {
    const auto opened = open_device();
    if (!opened.ok()) GTEST_SKIP() << opened.error().message;
    counted_ = testing::device_counter();
    if (counted_ == nullptr) GTEST_SKIP() << "TEGULA_COUNT_FLOPS is not set: kernels do not count";
  }

  // The FLOPs that the kernels counted in a run of so many steps, its evaluation included.
  int64_t run(int64_t steps, int64_t& planned) {
    TrainConfig c;
    c.data = ::testing::TempDir() + "/device_count.txt";
    std::string text;
    for (int i = 0; i < 400; ++i) text += cat("line ", i, " of ", i * 7919 % 1000, "\n");
    EXPECT_TRUE(write_file(c.data, text).ok());
    c.model.type = GetParam().type, c.model.n_layers = 2, c.model.n_heads = 2, c.model.d_model = 64;
    c.model.capacity_factor = 0;  // every token finds room: one that does not is counted in no sum
    c.model.max_seqlen = 64, c.batch = 2, c.steps = steps, c.warmup = 1, c.eval_every = 0;
    c.dtype = GetParam().dtype, c.threads = 1, c.device = "cuda";
    auto t = Trainer::create(c);
    EXPECT_TRUE(t.ok()) << t.error().to_string();
    if (!t.ok()) return -1;
    EXPECT_GE(counted_(), 0);  // from here on
    const auto sum = (*t)->run(std::atomic<bool>{false});
    EXPECT_TRUE(sum.ok()) << sum.error().to_string();
    if (sum.ok()) planned = sum->flops_per_step_planned;
    return counted_();
  }

  testing::CountedFlops counted_ = nullptr;
};

TEST_P(DeviceCount, OfAStepIsThePlans) {
  int64_t planned = 0;
  const int64_t two = run(2, planned), three = run(3, planned);
  std::printf("%s, %s: FLOPs of a step counted by the kernels %lld, planned %lld\n",
              GetParam().type, GetParam().dtype, static_cast<long long>(three - two),
              static_cast<long long>(planned));
  EXPECT_GT(planned, 0);
  EXPECT_EQ(three - two, planned);
}
// A token as one kernel, whose blocks make a norm each for itself, which is counted once: what
// launches count. (The plan's attention is that of all keys that there may be.)
TEST(DeviceCountOfAToken, AsOneKernelIsThatOfLaunches) {
  const auto device = open_device();
  if (!device.ok()) GTEST_SKIP() << device.error().message;
  const testing::CountedFlops counted = testing::device_counter();
  if (counted == nullptr) GTEST_SKIP() << "TEGULA_COUNT_FLOPS is not set: kernels do not count";
  const auto run = [&](const char* is_persistent) {
    Rank rank(**device);
    Store store(rank);
    std::vector<HostTensor> inputs;
    ::setenv("TEGULA_CUDA_PERSISTENT", is_persistent, 1);
    const auto s = testing::decoding(testing::small_llama(), rank, store, inputs);
    EXPECT_TRUE(s->run().ok());
    ::unsetenv("TEGULA_CUDA_PERSISTENT");
    EXPECT_GE(counted(), 0);  // from here on
    EXPECT_TRUE(s->run().ok());
    return counted();
  };
  const int64_t of_launches = run("0");
  EXPECT_GT(of_launches, 2 * 192 * 64);  // of the head alone
  EXPECT_EQ(run("1"), of_launches);
}

INSTANTIATE_TEST_SUITE_P(Families, DeviceCount,
                         ::testing::Values(Family{"gpt2", "f32"}, Family{"gpt2", "bf16"},
                                           Family{"gpt2", "f16"}, Family{"llama", "bf16"},
                                           Family{"moe", "bf16"}),
                         [](const auto& info) {
                           return cat(info.param.type, "_", info.param.dtype);
                         });

}  // namespace
}  // namespace tegula
