// Accesses to shared memory that nothing orders are found, whatever the results.
#include "tests/kernels/cuda/emulator/test/kernel_text.h"

namespace tegula::cuda::testing {
namespace {

class EmulatedRaces : public ::testing::Test {
 protected:
  // The text of two warps; `barrier` stands between a write by the one and a read by the other.
  static std::string text(const char* barrier, const char* before = "") {
    return cat(R"(
extern "C" __global__ void kernel(int* out) {
  __shared__ int x[64];
  __shared__ unsigned flag;
  )",
               before, R"(
  x[threadIdx.x] = threadIdx.x;
  )",
               barrier, R"(
  if (threadIdx.x == 0) *out = x[5];
  if (threadIdx.x == 40) out[1] = x[3];
})");
  }
  const Setting races_{"FAKE_CUDA_RACES", "1"};
  DeviceMemory<int> out_{2};
};

TEST_F(EmulatedRaces, ReadsThatNothingOrders) {
  const KernelText none(text(""));
  expect_says(none.failure({1, 64}, out_.data()),
              {"thread (40, 0, 0)", "a race", "of static shared memory is read by warp 1",
               "was written by warp 0"});
  const KernelText warps(text("__syncwarp();"));
  expect_says(warps.failure({1, 64}, out_.data()), {"a race"});
}

TEST_F(EmulatedRaces, WritesAfterReads) {
  const KernelText kernel(R"(
extern "C" __global__ void kernel(int* out) {
  extern __shared__ int y[];
  y[threadIdx.x] = 1;
  __syncthreads();
  if (threadIdx.x >= 32)
    out[threadIdx.x % 2] = y[63 - threadIdx.x];
  else
    y[threadIdx.x] = 2;
})");
  expect_says(kernel.failure({1, 64, 256}, out_.data()),
              {"of dynamic shared memory is written by warp 0", "was read by warp 1"});
}

TEST_F(EmulatedRaces, WhatIsOrdered) {
  for (const char* barrier : {"__syncthreads();", "named_sync(1, 64);"}) {
    const KernelText kernel(text(barrier));
    EXPECT_EQ(kernel.launch({2, 64}, out_.data()), 0) << barrier;
  }
  // One warp arrives, the other waits; and a counter that both add to.
  const KernelText handed(R"(
extern "C" __global__ void kernel(int* out) {
  __shared__ int x;
  if (threadIdx.x == 0) x = 3;
  __syncwarp();
  if (threadIdx.x < 32) named_arrive(2, 64); else named_sync(2, 64);
  if (threadIdx.x == 40) *out = x;
})");
  EXPECT_EQ(handed.launch({1, 64}, out_.data()), 0);
  const KernelText counter(R"(
extern "C" __global__ void kernel(int* out) {
  __shared__ int x, n;
  if (threadIdx.x == 0) n = 0;
  __syncthreads();
  if (threadIdx.x == 0) x = 3;
  if (threadIdx.x % 32 == 0) atomicAdd(&n, 1);
  if (threadIdx.x == 40) {
    while (atomicAdd(&n, 0) < 2) __nanosleep(1);
    *out = x;
  }
})");
  EXPECT_EQ(counter.launch({1, 64}, out_.data()), 0);
}

TEST_F(EmulatedRaces, CopiesInTheBackground) {
  const auto kernel = [](const char* after) {
    return cat(R"(
extern "C" __global__ void kernel(int* out, const int* in) {
  __shared__ __align__(16) int x[8];
  if (threadIdx.x == 0) {
    cp_async(smem_address(x), in, 16), cp_async_commit();
    cp_async_wait<0>();
  }
  )",
               after, R"(
  if (threadIdx.x == 40) *out = x[1];
})");
  };
  DeviceMemory<int> in(4);
  EXPECT_EQ(KernelText(kernel("__syncthreads();")).launch({1, 64}, out_.data(), in.data()), 0);
  expect_says(KernelText(kernel("")).failure({1, 64}, out_.data(), in.data()), {"a race"});
}

}  // namespace
}  // namespace tegula::cuda::testing
