// A row of logits that lies in shared memory between lse and gradient has the bits of one that is
// read again, whether all of it fits or only its end. Skipped where no GPU can be used.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tegula/base/round.h"
#include "tegula/kernels/cuda/cross_entropy_params.h"
#include "tegula/kernels/cuda/driver.h"
#include "tegula/kernels/cuda/nvrtc.h"
#include "tegula/kernels/device.h"

namespace tegula::cuda {
namespace {

constexpr int64_t kRows = 3;

// A launch's results: gradients in the logits' place, then lse and picked of each row.
struct Written {
  std::vector<uint16_t> logits;
  std::vector<uint32_t> sums;
  bool operator==(const Written&) const = default;
};

class CudaCrossEntropy : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto opened = open_device();
    if (!opened.ok()) GTEST_SKIP() << opened.error().message;
    device_ = *opened;
  }

  const Module& module(bool has_grads, bool is_given) {
    auto& m = modules_[2 * has_grads + is_given];
    if (m != nullptr) return *m;
    const std::string arch = device_->target().capability == 90 ? "sm_90a" : "sm_80";
    const std::vector<std::string> defines = {cat("TEGULA_GRADS=", int{has_grads}),
                                              cat("TEGULA_GIVEN=", int{is_given}), "TEGULA_ID64=0"};
    const Compiled compiled = compile_kernel("cross_entropy.cu", defines, arch).value();
    m = std::make_unique<Module>(Module::load(compiled.cubin).value());
    return *m;
  }

  void start(bool has_grads, bool is_given, const CrossEntropyParams& p) {
    const int bytes = p.n_slots * kCrossEntropyStepBytes;
    const Grid grid{{kRows, 1, 1}, {kCrossEntropyThreads, 1, 1}, bytes, true};
    const auto f = module(has_grads, is_given).function("cross_entropy", bytes).value();
    Driver::get().value()->start(f, grid, device_->stream(), "launching", p).value();
  }

  // In one launch, with that many slots, or, without any, in two.
  Written run(int v, int n_slots) {
    const int64_t row = round_up(int64_t{v}, int64_t{64});
    Written w{std::vector<uint16_t>(static_cast<size_t>(kRows * row)),
              std::vector<uint32_t>(2 * kRows)};
    uint32_t random = 1;
    for (uint16_t& x : w.logits) {
      random = random * 1664525 + 1013904223;  // ± 2^-4 to 16
      x = static_cast<uint16_t>(0x3d80 + (random >> 20) % 0x400 + (random >> 31 << 15));
    }
    const float slopes[] = {0.5F, -0.25F, 3, -1, 2, 0.125F};
    const int targets[] = {v - 1, -100, v / 2};
    const int64_t bytes[] = {2 * kRows * row, 8 * kRows, sizeof slopes, sizeof targets};
    void* memory[4];
    for (int i = 0; i < 4; ++i) memory[i] = device_->allocate(bytes[i]).value();
    const void* from[] = {w.logits.data(), w.sums.data(), slopes, targets};
    for (int i = 0; i < 4; ++i) device_->copy(memory[i], from[i], bytes[i]).value();

    CrossEntropyParams p{};
    p.logits = static_cast<unsigned short*>(memory[0]), p.row = row, p.v = v;
    p.lse = static_cast<float*>(memory[1]), p.picked = p.lse + kRows;
    p.dlse = static_cast<float*>(memory[2]), p.dpicked = p.dlse + kRows;
    p.targets = memory[3], p.ignore_index = -100, p.n_slots = n_slots;
    p.target_stride = p.dlse_stride = p.dpicked_stride = p.lse_stride = p.picked_stride = 1;
    if (n_slots > 0) {
      start(true, false, p);
    } else {
      start(false, false, p);
      start(true, true, p);
    }
    device_->wait().value();
    device_->copy(w.logits.data(), memory[0], bytes[0]).value();
    device_->copy(w.sums.data(), memory[1], bytes[1]).value();
    for (void* data : memory) device_->release(data);
    return w;
  }

  Device* device_ = nullptr;
  std::unique_ptr<Module> modules_[4];
};

TEST_F(CudaCrossEntropy, KeptRowsHaveTheBitsOfThoseReadAgain) {
  constexpr int kStep = kCrossEntropyStepBytes / 2, kLeast = kCrossEntropyAhead + 1;
  for (const int v : {1, 9, kStep, 3 * kStep + 5, kLeast * kStep, kLeast * kStep + 1,
                      3 * kLeast * kStep - 77, 50257}) {
    const Written expected = run(v, 0);
    const int n_steps = (v - 1) / kStep + 1;
    for (const int n_slots : {kLeast, kLeast + 1, 12})
      EXPECT_EQ(run(v, std::min(n_slots, n_steps)), expected) << v << " in " << n_slots;
  }
}

}  // namespace
}  // namespace tegula::cuda
