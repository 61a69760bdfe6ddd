// Occupancy by hand: what NVIDIA's tables and whole numbers give.
#include "tegula/kernels/cuda/describe/occupancy.h"

#include <gtest/gtest.h>

namespace tegula::cuda {
namespace {

Occupancy of(const char* gpu, int threads, int registers, int64_t smem_bytes) {
  return occupancy_of(find_target(gpu).value(), {threads, registers, smem_bytes}).value();
}

TEST(Occupancy, EachResourceLimits) {
  // 65,536 registers are those of 2,048 threads of 32.
  const Occupancy full = of("a100", 256, 32, 0);
  EXPECT_EQ(full.blocks, 8);
  EXPECT_EQ(full.share, 1);
  EXPECT_EQ(full.limited, "threads");
  EXPECT_EQ(full.active_threads, 108 * 2048);
  // 64 registers: half of them.
  EXPECT_EQ(of("a100", 256, 64, 0).blocks, 4);
  EXPECT_EQ(of("a100", 256, 64, 0).limited, "registers");
  // 33 registers take as many as 40.
  EXPECT_EQ(of("a100", 256, 33, 0).blocks, 6);
  EXPECT_EQ(of("a100", 256, 40, 0).blocks, 6);
  EXPECT_EQ(of("a100", 256, 41, 0).blocks, 5);
  // Small blocks: 32 of them, half of the warps.
  EXPECT_EQ(of("a100", 32, 16, 0).blocks, 32);
  EXPECT_EQ(of("a100", 32, 16, 0).limited, "blocks");
  EXPECT_EQ(of("a100", 32, 16, 0).share, .5);
  // 164 KiB, of which the system takes 1 a block.
  EXPECT_EQ(of("a100", 128, 32, 40 << 10).blocks, 4);
  EXPECT_EQ(of("a100", 128, 32, (40 << 10) + 1).blocks, 3);
  EXPECT_EQ(of("a100", 128, 32, 163 << 10).blocks, 1);
  EXPECT_EQ(of("a100", 128, 32, 163 << 10).limited, "shared memory");
}

TEST(Occupancy, DevicesDiffer) {
  EXPECT_EQ(of("l4", 256, 32, 0).blocks, 6);  // 1,536 threads
  EXPECT_EQ(of("a10g", 64, 32, 0).blocks, 16);
  EXPECT_EQ(of("l4", 64, 32, 0).blocks, 24);
  EXPECT_EQ(of("h100", 64, 32, 0).blocks, 32);
  EXPECT_EQ(of("h100", 384, 168, 227 << 10).blocks, 1);
  EXPECT_EQ(of("h100", 384, 168, 0).limited, "registers");
}

TEST(Occupancy, ABlockTooLargeIsRefusedOrHasNoRoom) {
  const Target gpu = find_target("h100").value();
  for (const KernelUse& use : {KernelUse{0, 32, 0},
                               {1025, 32, 0},
                               {256, 256, 0},
                               {256, 32, -1},
                               {256, 32, (227 << 10) + 1}})
    EXPECT_EQ(occupancy_of(gpu, use).error().code, Code::kInvalidArgument);
  EXPECT_EQ(of("h100", 1024, 128, 0).blocks, 0);
  EXPECT_FALSE(occupancy_of(find_target("zen3").value(), {256, 32, 0}).ok());
}

TEST(Occupancy, Waves) {
  const Target gpu = find_target("h100").value();
  const Occupancy o = of("h100", 256, 64, 0);  // 4 blocks: 528 at once
  const Waves w = waves_of(gpu, o, 1000);
  EXPECT_EQ(w.wave, 528);
  EXPECT_EQ(w.whole, 1);
  EXPECT_EQ(w.tail, 472);
  EXPECT_DOUBLE_EQ(w.efficiency, 1000. / 1056);
  EXPECT_EQ(waves_of(gpu, o, 1056).tail, 0);
  EXPECT_EQ(waves_of(gpu, o, 1056).efficiency, 1);
}

}  // namespace
}  // namespace tegula::cuda
