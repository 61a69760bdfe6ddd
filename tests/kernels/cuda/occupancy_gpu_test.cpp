// Our occupancy is the driver's: for kernels as they are loaded on the device, with blocks of every
// number of warps and any shared memory. Skipped where no GPU can be used.
#include <gtest/gtest.h>

#include "tegula/kernels/cuda/describe/occupancy.h"
#include "tegula/kernels/cuda/driver.h"
#include "tegula/kernels/cuda/nvrtc.h"
#include "tegula/kernels/device.h"

namespace tegula::cuda {
namespace {

struct Loaded {
  const char* source;
  const char* kernel;
  std::vector<std::string> defines;
};

TEST(CudaOccupancy, IsTheDrivers) {
  const auto opened = open_device();
  if (!opened.ok()) GTEST_SKIP() << opened.error().message;
  const Target& gpu = (*opened)->target();
  const Driver& driver = *Driver::get().value();
  const std::string arch = gpu.capability == 90 ? "sm_90a" : "sm_80";
  const Loaded all[] = {
      {"scans.cu",
       "linear_recurrence",
       {"TEGULA_T=float", "TEGULA_SUM=float", "TEGULA_LINES=32", "TEGULA_SCAN=1"}},
      {"max_pool.cu", "max_pool", {"TEGULA_T=float"}},
      {"move.cu", "move_strided", {"TEGULA_BYTES=4"}},
      {"dot_i8.cu", "dot_i8", {"TEGULA_ROWS=64", "TEGULA_BITS=8"}}};
  int n_compared = 0;
  for (const Loaded& k : all) {
    const Compiled compiled = compile_kernel(k.source, k.defines, arch).value();
    const Module module = Module::load(compiled.cubin).value();
    for (const int dynamic : {0, 1, 1000, 16 << 10, 40 << 10, 80 << 10}) {
      const FunctionHandle f = module.function(k.kernel, dynamic).value();
      constexpr int kSharedBytes = 1, kRegisters = 4;
      int fixed = 0, registers = 0;
      driver.check(driver.function_get(&fixed, kSharedBytes, f), "shared").value();
      driver.check(driver.function_get(&registers, kRegisters, f), "registers").value();
      if (fixed + dynamic > gpu.smem_bytes) continue;
      for (int threads = 32; threads <= 256; threads += 32) {
        int blocks = -1;
        driver.check(driver.occupancy(&blocks, f, threads, static_cast<size_t>(dynamic)), "blocks")
            .value();
        const auto ours = occupancy_of(gpu, {threads, registers, int64_t{fixed} + dynamic});
        ASSERT_TRUE(ours.ok()) << ours.error().message;
        EXPECT_EQ(ours->blocks, blocks) << k.kernel << ", " << threads << " threads, " << registers
                                        << " registers, " << fixed << " + " << dynamic << " bytes";
        ++n_compared;
      }
    }
  }
  EXPECT_GT(n_compared, 100);
}

}  // namespace
}  // namespace tegula::cuda
