// Tests what a launch may not do: it fails with what, where and by whom, and the process goes on.
#include <elf.h>

#include <cstring>
#include <memory>

#include "tests/kernels/cuda/emulator/test/kernel_text.h"

namespace tegula::cuda::testing {
namespace {

TEST(EmulatedFaults, PastTheEndOfAnAllocation) {
  const KernelText text(R"(
extern "C" __global__ void kernel(int* out, int i) { if (threadIdx.x == 3) out[i] = 1; })");
  DeviceMemory<int> out(256);
  EXPECT_EQ(text.launch({}, out.data(), 255), 0);
  expect_says(text.failure({}, out.data(), 257),
              {"thread (3, 0, 0) of (32, 1, 1)",
               "4 bytes past the end of an allocation of 1024 bytes", "(700)"});
  expect_says(text.failure({}, static_cast<int*>(nullptr), 2), {"8 bytes from the null pointer"});
}

TEST(EmulatedFaults, LoadsBeforeTheLaunchBeforeHasEnded) {
  ::setenv("FAKE_CUDA_EARLY", "1", 1);
  const KernelText writes(R"(
extern "C" __global__ void kernel(int* out, int x) { out[threadIdx.x] = x; })");
  const KernelText reads(R"(
extern "C" __global__ void kernel(const int* in, int* out, int waits) {
  if (waits) asm volatile("griddepcontrol.wait;" ::: "memory");
  out[threadIdx.x] = load_streamed(in + threadIdx.x % 8 * 4).x;
})");
  DeviceMemory<int> a(32), b(32), out(32);
  EXPECT_EQ(writes.launch({}, a.data(), 1), 0);
  expect_says(reads.failure({}, a.data(), out.data(), 0),
              {"loads 16 bytes before it has waited for the launch before, which wrote them"});
  EXPECT_EQ(writes.launch({}, a.data(), 2), 0);
  EXPECT_EQ(reads.launch({}, a.data(), out.data(), 1), 0);
  EXPECT_EQ(writes.launch({}, a.data(), 3), 0);
  EXPECT_EQ(reads.launch({}, b.data(), out.data(), 0), 0) << "others' memory";
  EXPECT_EQ(reads.launch({}, a.data(), out.data(), 0), 0) << "what was written a launch earlier";
  ::unsetenv("FAKE_CUDA_EARLY");
}

TEST(EmulatedFaults, FreedMemory) {
  const KernelText text(R"(extern "C" __global__ void kernel(int* out) { out[1] = 1; })");
  void* freed = nullptr;
  ASSERT_EQ(driver().allocate(&freed, 4096), 0);
  ASSERT_EQ(driver().release(freed), 0);
  expect_says(text.failure({1, 1}, freed),
              {"4 bytes into an allocation of 4096 bytes that was freed"});
  EXPECT_NE(driver().release(freed), 0);
}

TEST(EmulatedFaults, CopiesAndFills) {
  void* data = nullptr;
  char host[2000] = {};
  ASSERT_EQ(driver().allocate(&data, 1000), 0);
  char* inside = static_cast<char*>(data) + 100;
  EXPECT_EQ(driver().copy(inside, host, 900), 0);
  const auto says = [](int status) {
    EXPECT_EQ(status, 1);
    return driver().check(status, "a call").error().message;
  };
  expect_says(says(driver().copy(inside, host, 908)),
              {"908 bytes to 8 bytes more than an allocation of 1000 bytes has from byte 100"});
  expect_says(says(driver().copy(host, inside, 908)), {"908 bytes from 8 bytes more"});
  expect_says(says(driver().fill(inside, 0, 901)), {"901 bytes of 1 bytes more"});
  expect_says(says(driver().fill_later(nullptr, 0, 1, nullptr)), {"null pointer"});
  ASSERT_EQ(driver().release(data), 0);
  expect_says(says(driver().copy(host, inside, 1)), {"an allocation of 1000 bytes that was freed"});
}

TEST(EmulatedFaults, PointersOfTheHost) {
  const KernelText text(R"(
struct Two { long long n; int* out; };
extern "C" __global__ void kernel(int y, const Two p) { *p.out = y; })");
  struct Two {
    int64_t n;
    void* out;
  };
  const auto on_heap = std::make_unique<int>(1);
  int on_stack = 1;
  for (int* out : {on_heap.get(), &on_stack})
    expect_says(text.failure({1, 1}, 7, Two{5, out}),
                {"kernel: byte 8 of argument 1 points to the host's memory"});
  void* pinned = nullptr;
  ASSERT_EQ(driver().allocate_pinned(&pinned, 4, 0), 0);
  EXPECT_EQ(text.launch({1, 1}, 7, Two{5, pinned}), 0);
  EXPECT_EQ(*static_cast<int*>(pinned), 7);
  EXPECT_EQ(driver().release_pinned(pinned), 0);
}

TEST(EmulatedFaults, FreshMemoryIsNoNumber) {
  void* data = nullptr;
  ASSERT_EQ(driver().allocate(&data, 8), 0);
  uint64_t bits = 0;
  ASSERT_EQ(driver().copy(&bits, data, 8), 0);
  EXPECT_EQ(bits, ~uint64_t{0});
  ASSERT_EQ(driver().release(data), 0);
}

TEST(EmulatedFaults, DynamicSharedMemory) {
  const KernelText text(R"(
extern "C" __global__ void kernel(int* out, int i) {
  extern __shared__ int shared[];
  shared[i] = 1;
  *out = shared[i];
})");
  DeviceMemory<int> out(1);
  EXPECT_EQ(text.launch({1, 1, 2048}, out.data(), 511), 0);
  expect_says(text.failure({1, 1, 2048}, out.data(), 512),
              {"byte 2048 of dynamic shared memory, of which the launch gave 2048"});
  // The gap that the alignment leaves before the forbidden page is looked at after each block.
  expect_says(text.failure({1, 1, 100}, out.data(), 25),
              {"byte 100 of dynamic shared memory was written, the launch gave 100"});
  // More than a block has without asking; then asked for.
  expect_says(text.failure({1, 1, 50000}, out.data(), 0),
              {"50000", "cuFuncSetAttribute allowed 49152", "(1)"});
  ASSERT_EQ(driver().function_set(text.function(), 8, 50000), 0);
  EXPECT_EQ(text.launch({1, 1, 50000}, out.data(), 0), 0);
  EXPECT_NE(driver().function_set(text.function(), 8, 164 * 1024), 0);
}

TEST(EmulatedFaults, SharedAddresses) {
  const KernelText text(R"(
extern "C" __global__ void kernel(const int* in, int at) {
  extern __shared__ __align__(1024) char shared[];
  cp_async(smem_address(shared) + at, in, 16);
})");
  DeviceMemory<int> in(4);
  EXPECT_EQ(text.launch({1, 1, 64}, in.data(), 48), 0);
  expect_says(text.failure({1, 1, 64}, in.data(), 64),
              {"bytes 64 to 80 of dynamic shared memory", "gave 64"});
  expect_says(text.failure({1, 1, 64}, in.data(), 8), {"not aligned to 16"});
  const KernelText global(R"(
extern "C" __global__ void kernel(const int* in) { cp_async(smem_address(in), in, 16); })");
  expect_says(global.failure({1, 1}, in.data()),
              {"not in shared memory", "0 bytes into an allocation of 16"});
}

TEST(EmulatedFaults, WhatTheProcessorRefuses) {
  DeviceMemory<int> data(64);
  const KernelText divides(R"(extern "C" __global__ void kernel(int* x) { x[1] = x[2] / x[3]; })");
  expect_says(divides.failure({1, 1}, data.data()), {"divided by zero"});
  const KernelText unaligned(R"(
extern "C" __global__ void kernel(int* x) { *reinterpret_cast<float4*>(x + 1) = *reinterpret_cast<float4*>(x + 5); })");
  expect_says(unaligned.failure({1, 1}, data.data()), {"not aligned"});
  const KernelText deep(R"(
__device__ __noinline__ int down(volatile int* x, int n) {
  volatile int big[1024];
  big[n % 1024] = x[0];
  return n == 0 ? 0 : down(x, n - 1) + big[n % 1024];
}
extern "C" __global__ void kernel(int* x) { x[0] = down(x, 1000); })");
  expect_says(deep.failure({1, 1}, data.data()), {"stack"});
  const KernelText asserts(
      R"(extern "C" __global__ void kernel(int* x) { assert(x[0] == 1 && "one"); })");
  expect_says(asserts.failure({1, 1}, data.data()), {"does not hold", "x[0] == 1"});
}

TEST(EmulatedFaults, TooManyThreads) {
  const KernelText text(R"(extern "C" __global__ void __launch_bounds__(2 * 32, 1) kernel() {})");
  EXPECT_EQ(text.launch({1, 64}), 0);
  expect_says(text.failure({1, 96}), {"96 threads, __launch_bounds__ says 64", "(701)"});
  EXPECT_EQ(text.launch({0, 32}), 1);
}

TEST(EmulatedFaults, InstructionsItDoesNotKnow) {
  const KernelText text(R"(
extern "C" __global__ void kernel(int* x) {
  if (*x == 1) asm volatile("frobnicate.sync.u32 %0, %1;" : "=r"(*x) : "r"(3));
})");
  DeviceMemory<int> x(1), one(std::vector<int>{1});
  EXPECT_EQ(text.launch({1, 1}, x.data()), 0);
  expect_says(text.failure({1, 1}, one.data()),
              {"does not know the instruction frobnicate.sync.u32"});
}

TEST(EmulatedFaults, TextsThatDoNotCompile) {
  const auto c = compile_text("tests/emulator/wrong.cu", "\n\nint x = nothing;\n", {}, "sm_80");
  ASSERT_FALSE(c.ok());
  expect_says(c.error().message, {"wrong.cu:3", "nothing"});
}

TEST(EmulatedFaults, CubinsOfARealGpu) {
  Elf64_Ehdr head{};
  std::memcpy(head.e_ident, ELFMAG, SELFMAG);
  head.e_machine = EM_CUDA;
  ModuleHandle module = nullptr;
  FunctionHandle f = nullptr;
  ASSERT_EQ(driver().module_load(&module, &head), 0);
  ASSERT_EQ(driver().module_function(&f, module, "any"), 0);
  void* arguments[] = {nullptr};
  const auto launch = [&] {
    return driver().launch(f, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr);
  };
  EXPECT_EQ(launch(), 0);
  const Setting refuses("FAKE_CUDA_REAL_LAUNCH", "209");
  EXPECT_EQ(launch(), 209);
  EXPECT_EQ(driver().module_load(&module, "no cubin"), 200);
}

TEST(EmulatedFaults, UnloadedModules) {
  FunctionHandle f = nullptr;
  {
    const KernelText text(R"(extern "C" __global__ void kernel() {})");
    f = text.function();
    EXPECT_EQ(text.launch({1, 1}), 0);
  }
  void* arguments[] = {nullptr};
  EXPECT_EQ(driver().launch(f, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr), 400);
}

TEST(EmulatedFaults, MemoryThatIsNotThere) {
  const Setting small("FAKE_CUDA_MEMORY_MIB", "1");
  void *half = nullptr, *more = nullptr;
  ASSERT_EQ(driver().allocate(&half, 700000), 0);
  EXPECT_EQ(driver().allocate(&more, 700000), 2);
  ASSERT_EQ(driver().release(half), 0);
  EXPECT_EQ(driver().allocate(&more, 700000), 0);
  ASSERT_EQ(driver().release(more), 0);
}

}  // namespace
}  // namespace tegula::cuda::testing
