// Tests what the threads of a block do together, and how the emulator tells what they do wrong.
#include <bit>
#include <cmath>

#include "tests/kernels/cuda/emulator/test/kernel_text.h"

namespace tegula::cuda::testing {
namespace {

TEST(EmulatedThreads, KnowTheirPlace) {
  const KernelText text(R"(
extern "C" __global__ void kernel(int* out) {
  const int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  out[block * 24 + thread] += 1 + thread + 100 * block;
})");
  DeviceMemory<int> out(6 * 24);
  void* data = out.data();
  void* arguments[] = {&data};
  ASSERT_EQ(driver().launch(text.function(), 3, 1, 2, 4, 3, 2, 0, nullptr, arguments, nullptr), 0);
  for (int i = 0; i < 6 * 24; ++i)
    EXPECT_EQ(out.host()[static_cast<size_t>(i)], 1 + i % 24 + 100 * (i / 24));
}

TEST(EmulatedThreads, ShareMemoryBetweenBarriers) {
  const KernelText text(R"(
template <int kCount>
__device__ int* shared_row() {
  __shared__ int row[kCount];
  return row;
}
extern "C" __global__ void __launch_bounds__(96) kernel(int* out) {
  int* row = shared_row<96>();
  extern __shared__ __align__(1024) int more[];
  row[threadIdx.x] = threadIdx.x + 1;
  more[threadIdx.x] = 2 * threadIdx.x;
  __syncthreads();
  int sum = more[95 - threadIdx.x];
  for (int i = 0; i < 96; ++i) sum += row[i];
  out[blockIdx.x * 96 + threadIdx.x] = sum;
})");
  DeviceMemory<int> out(3 * 96);
  ASSERT_EQ(text.launch({3, 96, 96 * 4}, out.data()), 0);
  for (int i = 0; i < 3 * 96; ++i)
    EXPECT_EQ(out.host()[static_cast<size_t>(i)], 96 * 97 / 2 + 2 * (95 - i % 96));
}

TEST(EmulatedThreads, SharedMemoryBeginsAsNoNumberInEachBlock) {
  const KernelText text(R"(
extern "C" __global__ void kernel(int* out) {
  __shared__ float fixed[4];
  extern __shared__ float dynamic[];
  if (threadIdx.x == 0) out[blockIdx.x] = isnan(fixed[3]) && isnan(dynamic[7]);
  fixed[3] = dynamic[7] = 1;
})");
  DeviceMemory<int> out(2);
  ASSERT_EQ(text.launch({2, 32, 32}, out.data()), 0);
  EXPECT_EQ(out.host(), std::vector<int>({1, 1}));
}

TEST(EmulatedThreads, MissingAtABarrier) {
  const KernelText text(R"(
extern "C" __global__ void kernel() {
  if (threadIdx.x < 40) __syncthreads();
})");
  expect_says(text.failure({3, 64}),
              {"kernel, block (0, 0, 0) of (3, 1, 1)", "threads 0-39 wait at __syncthreads",
               "40 of 64 have come", "threads 40-63 have ended", "(719)"});
  // And the next launch runs.
  const KernelText good("extern \"C\" __global__ void kernel(int* out) { *out = 5; }");
  DeviceMemory<int> out(1);
  ASSERT_EQ(good.launch({1, 1}, out.data()), 0);
  EXPECT_EQ(out.host()[0], 5);
}

TEST(EmulatedThreads, NamedBarriersOfOtherSizes) {
  const KernelText text(R"(
extern "C" __global__ void kernel() { named_sync(3, threadIdx.x < 32 ? 64 : 96); })");
  expect_says(text.failure({1, 64}), {"barrier 3 is of 64 threads", "of 96 to this one"});
}

TEST(EmulatedThreads, Shuffles) {
  const KernelText text(R"(
extern "C" __global__ void kernel(int* out) {
  const int lane = threadIdx.x, x = 10 * lane;
  int* o = out + 6 * lane;
  o[0] = __shfl_sync(0xffffffff, x, 5);
  o[1] = __shfl_sync(0xffffffff, x, 3, 8);
  o[2] = __shfl_xor_sync(0xffffffff, x, 9);
  o[3] = __shfl_up_sync(0xffffffff, x, 2, 16);
  o[4] = __shfl_down_sync(0xffffffff, x, 3);
  o[5] = lane < 7 ? __shfl_sync(0x7f, x, 6) : -1;
})");
  DeviceMemory<int> out(6 * 32);
  ASSERT_EQ(text.launch({}, out.data()), 0);
  const std::vector<int> got = out.host();
  for (int i = 0; i < 32; ++i) {
    const auto at = 6 * static_cast<size_t>(i);
    EXPECT_EQ(got[at], 50);
    EXPECT_EQ(got[at + 1], 10 * (i / 8 * 8 + 3));
    EXPECT_EQ(got[at + 2], 10 * (i ^ 9));
    EXPECT_EQ(got[at + 3], 10 * (i % 16 < 2 ? i : i - 2));
    EXPECT_EQ(got[at + 4], 10 * (i + 3 < 32 ? i + 3 : i));
    EXPECT_EQ(got[at + 5], i < 7 ? 60 : -1);
  }
}

TEST(EmulatedThreads, VotesAndSums) {
  const KernelText text(R"(
extern "C" __global__ void kernel(unsigned* out, int* sum) {
  const unsigned lane = threadIdx.x % 32;
  const unsigned got[] = {__ballot_sync(0xffffffff, lane % 3 == 0), unsigned(__any_sync(0xffffffff, lane == 9)),
                          unsigned(__all_sync(0xffffffff, lane < 31)), __reduce_add_sync(0xffffffff, lane),
                          __reduce_max_sync(0xffffffff, lane ^ 21), __reduce_xor_sync(0xffffffff, 1u << lane),
                          unsigned(__syncthreads_count(threadIdx.x % 5 == 0))};
  for (int i = 0; i < 7; ++i) out[i * 64 + threadIdx.x] = got[i];
  atomicAdd(sum, int(threadIdx.x));
})");
  DeviceMemory<unsigned> out(7 * 64);
  DeviceMemory<int> sum(1);
  ASSERT_EQ(text.launch({1, 64}, out.data(), sum.data()), 0);
  unsigned ballot = 0;
  for (unsigned i = 0; i < 32; i += 3) ballot |= 1U << i;
  const unsigned want[] = {ballot, 1, 0, 31 * 16, 31, ~0U, 13};
  for (size_t i = 0; i < 7; ++i)
    for (size_t thread = 0; thread < 64; ++thread)
      EXPECT_EQ(out.host()[i * 64 + thread], want[i]) << i << " " << thread;
  EXPECT_EQ(sum.host()[0], 63 * 32);
}

TEST(EmulatedThreads, LanesThatDoNotMeet) {
  const KernelText other(R"(
extern "C" __global__ void kernel(int* out) {
  out[threadIdx.x] = threadIdx.x < 4 ? __shfl_sync(0xffffffff, 1, 0) : __any_sync(0xffffffff, 1);
})");
  DeviceMemory<int> out(32);
  expect_says(other.failure({}, out.data()), {"thread (4, 0, 0)", "meet at different instructions",
                                              "__any_sync", "__shfl_sync of lane 0"});
  const KernelText absent(R"(
extern "C" __global__ void kernel(int* out) {
  if (threadIdx.x == 7) return;
  out[threadIdx.x] = __shfl_sync(0xffffffff, 1, 7);
})");
  expect_says(absent.failure({}, out.data()), {"reads from a lane that has ended"});
  const KernelText outside(R"(
extern "C" __global__ void kernel(int* out) { out[threadIdx.x] = __shfl_sync(0xff, 1, 0); })");
  expect_says(outside.failure({}, out.data()), {"does not name the calling lane 8"});
  const KernelText waits(R"(
extern "C" __global__ void kernel() { if (threadIdx.x < 8) __syncwarp(); else __syncthreads(); })");
  expect_says(waits.failure({}), {"threads 0-7 wait at __syncwarp for lanes ffffffff of warp 0",
                                  "threads 8-31 wait at __syncthreads"});
}

TEST(EmulatedThreads, CopiesLandWhenTheyAreWaitedFor) {
  const KernelText text(R"(
extern "C" __global__ void kernel(const int* in, int* out) {
  __shared__ __align__(16) int to[8];
  cp_async(smem_address(to), in, 16), cp_async_commit();
  cp_async(smem_address(to + 4), in + 4, 8), cp_async_commit();
  out[0] = to[0];
  cp_async_wait<1>();
  out[1] = to[0], out[2] = to[4];
  cp_async_wait<0>();
  out[3] = to[4], out[4] = to[6];
})");
  DeviceMemory<int> in(std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8}), out(5);
  ASSERT_EQ(text.launch({1, 1}, in.data(), out.data()), 0);
  EXPECT_EQ(out.host(), std::vector<int>({-1, 1, -1, 5, 0}));
}

TEST(EmulatedThreads, AMissingBarrierIsSeenFromBehind) {
  const KernelText text(R"(
extern "C" __global__ void kernel(int* out) {
  __shared__ int x;
  if (threadIdx.x == 0) x = 7;
  if (threadIdx.x == 50) *out = x;
})");
  DeviceMemory<int> out(1);
  ASSERT_EQ(text.launch({1, 64}, out.data()), 0);
  EXPECT_EQ(out.host()[0], 7);
  const Setting backwards("FAKE_CUDA_BACKWARDS", "1");
  ASSERT_EQ(text.launch({1, 64}, out.data()), 0);
  EXPECT_EQ(out.host()[0], -1);
}

// Blocks that wait for one another: in a cooperative launch they take turns, in others the first
// waits for ever. Each has its own shared memory.
TEST(EmulatedThreads, BlocksOfACooperativeLaunchMeet) {
  const KernelText text(R"(
extern "C" __global__ void kernel(unsigned* arrived, int* out) {
  __shared__ int fixed;
  extern __shared__ int dynamic[];
  if (threadIdx.x == 0) fixed = 10 * blockIdx.x, dynamic[0] = blockIdx.x;
  __syncthreads();
  for (unsigned round = 1; round <= 3; ++round) {
    if (threadIdx.x == 0) {
      asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(arrived) : "memory");
      unsigned seen = 0;
      while (seen < round * gridDim.x)
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(arrived) : "memory");
    }
    __syncthreads();
  }
  if (threadIdx.x == 63) out[blockIdx.x] = fixed + dynamic[0];
})");
  const auto launch = [&](unsigned blocks, bool is_cooperative, unsigned* arrived, int* out) {
    const LaunchAttribute attribute{2, {int{is_cooperative}}};
    const LaunchConfig config{{blocks, 1, 1}, {64, 1, 1}, 16, nullptr, &attribute, 1};
    void* arguments[] = {&arrived, &out};
    return driver().launch_ex(&config, text.function(), arguments, nullptr);
  };
  DeviceMemory<unsigned> arrived(1), never(1);
  DeviceMemory<int> out(4);
  const Setting four("FAKE_CUDA_MULTIPROCESSORS", "4");
  ASSERT_EQ(launch(4, true, arrived.data(), out.data()), 0);
  EXPECT_EQ(out.host(), std::vector<int>({0, 11, 22, 33}));
  constexpr int kTooLarge = 720;
  EXPECT_EQ(launch(5, true, arrived.data(), out.data()), kTooLarge);
  EXPECT_NE(launch(2, false, never.data(), out.data()), 0);
}

TEST(EmulatedThreads, ALoopThatWaitsForever) {
  const KernelText text(R"(
extern "C" __global__ void kernel(unsigned* flag) { while (atomicCAS(flag, 1u, 1u) != 1) {} })");
  DeviceMemory<unsigned> flag(1);
  expect_says(text.failure({1, 1}, flag.data()), {"waits in a loop for what never comes"});
  const KernelText passed(R"(
extern "C" __global__ void kernel(unsigned* flag) {
  if (threadIdx.x == 0) while (__ldcg(flag) != blockIdx.x + 1) {}
  if (threadIdx.x == 40) atomicAdd(flag, 1u);
})");
  ASSERT_EQ(passed.launch({3, 64}, flag.data()), 0);
  EXPECT_EQ(flag.host()[0], 3U);
}

}  // namespace
}  // namespace tegula::cuda::testing
