// FLOPs of a training step as the kernels themselves count them, in a build of the kernels for this
// test alone: those of the plan. Run with TEGULA_COUNT_FLOPS=1 and the plug-in named in
// TEGULA_CUDA_PLUGIN; skipped elsewhere.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tegula/io/file.h"
#include "tegula/kernels/device.h"
#include "tegula/train/trainer.h"

namespace tegula {
namespace {

using CountedFlops = int64_t (*)();

class DeviceCount : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const char* plugin = std::getenv("TEGULA_CUDA_PLUGIN");
    if (std::getenv("TEGULA_COUNT_FLOPS") == nullptr || plugin == nullptr)
      GTEST_SKIP() << "TEGULA_COUNT_FLOPS is not set: kernels do not count";
    const auto opened = open_device();
    if (!opened.ok()) GTEST_SKIP() << opened.error().message;
    void* library = ::dlopen(plugin, RTLD_NOW | RTLD_NOLOAD);
    ASSERT_NE(library, nullptr) << plugin << " is not the plug-in that was opened";
    counted_ = reinterpret_cast<CountedFlops>(::dlsym(library, "tegula_cuda_counted_flops"));
    ASSERT_NE(counted_, nullptr);
  }

  // What the kernels counted in a run of so many steps, its evaluation included.
  int64_t run(int64_t steps, int64_t& planned) {
    TrainConfig c;
    c.data = ::testing::TempDir() + "/device_count.txt";
    std::string text;
    for (int i = 0; i < 400; ++i) text += cat("line ", i, " of ", i * 7919 % 1000, "\n");
    EXPECT_TRUE(write_file(c.data, text).ok());
    c.model.type = GetParam(), c.model.n_layers = 2, c.model.n_heads = 2, c.model.d_model = 64;
    c.model.max_seqlen = 64, c.batch = 2, c.steps = steps, c.warmup = 1, c.eval_every = 0;
    c.dtype = "f32", c.threads = 1, c.device = "cuda";
    auto t = Trainer::create(c);
    EXPECT_TRUE(t.ok()) << t.error().to_string();
    if (!t.ok()) return -1;
    EXPECT_GE(counted_(), 0);  // from here on
    const auto sum = (*t)->run(std::atomic<bool>{false});
    EXPECT_TRUE(sum.ok()) << sum.error().to_string();
    if (sum.ok()) planned = sum->flops_per_step_planned;
    return counted_();
  }

  CountedFlops counted_ = nullptr;
};

TEST_P(DeviceCount, OfAStepIsThePlans) {
  int64_t planned = 0;
  const int64_t two = run(2, planned), three = run(3, planned);
  std::printf("%s: FLOPs of a step counted by the kernels %lld, planned %lld\n", GetParam(),
              static_cast<long long>(three - two), static_cast<long long>(planned));
  EXPECT_GT(planned, 0);
  EXPECT_EQ(three - two, planned);
}
INSTANTIATE_TEST_SUITE_P(Families, DeviceCount, ::testing::Values("gpt2"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tegula
