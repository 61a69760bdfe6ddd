// The two rungs of the mean of three neighbours: the host's bits, and as many reads as they
// promise, counted by the kernels themselves in a build that counts. Skipped where no GPU can be
// used.
#include <gtest/gtest.h>

#include <cstdio>
#include <vector>

#include "tegula/kernels/cuda/driver.h"
#include "tegula/kernels/cuda/mean_params.h"
#include "tegula/kernels/cuda/nvrtc.h"
#include "tegula/kernels/device.h"

namespace tegula::cuda {
namespace {

class CudaMean : public ::testing::Test {
 protected:
  struct Run {
    std::vector<float> y;
    unsigned long long reads[2] = {};
  };

  void SetUp() override {
    const auto opened = open_device();
    if (!opened.ok()) GTEST_SKIP() << opened.error().message;
    device_ = *opened;
  }

  Run run(const char* rung, int64_t n, bool counts) {
    const std::vector<std::string> defines = {counts ? "TEGULA_COUNT=1" : "TEGULA_COUNT=0"};
    const std::string arch = device_->target().capability == 90 ? "sm_90a" : "sm_80";
    const Module module =
        Module::load(compile_kernel("mean.cu", defines, arch).value().cubin).value();
    std::vector<float> x;
    for (int64_t i = 0; i < n + 2; ++i) x.push_back(input(i));
    Run r{std::vector<float>(static_cast<size_t>(n), -1)};
    const int64_t x_bytes = 4 * (n + 2), y_bytes = 4 * n;
    MeanParams p{};
    void* memory[] = {device_->allocate(x_bytes).value(), device_->allocate(y_bytes).value(),
                      device_->allocate(sizeof r.reads).value()};
    p.x = static_cast<float*>(memory[0]), p.y = static_cast<float*>(memory[1]), p.n = n;
    p.reads = static_cast<unsigned long long*>(memory[2]);
    device_->copy(memory[0], x.data(), x_bytes).value();
    device_->fill(memory[2], 0, sizeof r.reads).value();
    const Grid grid{{(n + kMeanThreads - 1) / kMeanThreads, 1, 1}, {kMeanThreads, 1, 1}};
    const Driver* d = Driver::get().value();
    d->start(module.function(rung, 0).value(), grid, device_->stream(), "launching a mean", p)
        .value();
    device_->wait().value();
    device_->copy(r.y.data(), memory[1], y_bytes).value();
    device_->copy(r.reads, memory[2], sizeof r.reads).value();
    for (void* data : memory) device_->release(data);
    return r;
  }
  static float input(int64_t i) { return static_cast<float>((i * 7919) % 1001 - 500) * 0.37F; }

  Device* device_ = nullptr;
};

TEST_F(CudaMean, BothRungsHaveTheHostsBits) {
  for (const int64_t n : {1, 127, 128, 129, 1000, 4096})
    for (const char* rung : {"mean_naive", "mean_shared"}) {
      const Run r = run(rung, n, false);
      for (int64_t i = 0; i < n; ++i)
        ASSERT_EQ(r.y[static_cast<size_t>(i)], (input(i) + input(i + 1) + input(i + 2)) / 3.F)
            << rung << " of " << n << ", " << i;
      EXPECT_EQ(r.reads[0] + r.reads[1], 0U) << "a timed build counts nothing";
    }
}

TEST_F(CudaMean, ReadsOfABlock) {
  constexpr int64_t kBlocks = 32;
  const Run naive = run("mean_naive", kBlocks * kMeanThreads, true);
  const Run shared = run("mean_shared", kBlocks * kMeanThreads, true);
  std::printf("reads of global memory a block of 128: naive %g, through shared memory %g\n",
              static_cast<double>(naive.reads[0]) / kBlocks,
              static_cast<double>(shared.reads[0]) / kBlocks);
  EXPECT_EQ(naive.reads[0], kBlocks * 384U);
  EXPECT_EQ(naive.reads[1], 0U);
  EXPECT_EQ(shared.reads[0], kBlocks * 130U);
  EXPECT_EQ(shared.reads[1], kBlocks * 384U);
  EXPECT_EQ(naive.y, shared.y);
  // The last block of another length reads what its own threads need.
  EXPECT_EQ(run("mean_shared", kMeanThreads + 5, true).reads[0], 130U + 7U);
}

}  // namespace
}  // namespace tegula::cuda
