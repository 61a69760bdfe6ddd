// Shows how compute-sanitizer's racecheck judges two ways in which our kernels share memory.
//
//   nvcc -std=c++17 -I. -gencode arch=compute_90a,code=sm_90a -o ring bench/cuda/racecheck_ring.cu
//   for way in all elected sync arrive; do compute-sanitizer --tool racecheck ./ring $way; done
//
// A ring that the copy engine fills: readers wait for a slot's `full`, read it, and arrive at its
// `free`, for which the next load waits. `all`: every reading thread arrives: no hazard. `elected`:
// __syncwarp, then one lane of each warp arrives for all, as our kernels do: hazards are reported
// between the other lanes' reads and the next load, though __syncwarp orders memory accesses among
// the lanes. Both give the same sums.
//
// A buffer that one warpgroup writes and another reads, with a named barrier for `full` and one for
// `free`. `sync`: both sides wait at both. `arrive`: who writes only arrives at `full`, who has
// read only at `free`, as PTX describes producers and consumers and as attention_bwd_kv does.
#include <cstdio>
#include <cstring>

#include "tegula/kernels/cuda/ptx/sync.cuh"
#include "tegula/kernels/cuda/ptx/tma.cuh"

using namespace tegula::cuda;

constexpr int kStages = 2, kFloats = 64, kSteps = 8, kReaders = 128;

template <bool kAllArrive>
__global__ void ring(const float* in, float* out) {
  __shared__ __align__(128) float data[kStages][kFloats];
  __shared__ Barrier full[kStages], free[kStages];
  const int lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i)
      barrier_init(full + i, 1), barrier_init(free + i, kAllArrive ? kReaders : kReaders / 32);
    barrier_init_fence();
  }
  __syncthreads();
  Ring<kStages> r;
  if (threadIdx.x >= kReaders) {
    if (lane == 0)
      for (int i = 0; i < kSteps; ++i, r.advance()) {
        barrier_wait(free + r.slot, r.parity ^ 1);
        barrier_arrive_expect(full + r.slot, kFloats * 4);
        bulk_load(data[r.slot], in + i * kFloats, kFloats * 4, full + r.slot);
      }
    return;
  }
  float sum = 0;
  for (int i = 0; i < kSteps; ++i, r.advance()) {
    barrier_wait(full + r.slot, r.parity);
    for (int j = 0; j < kFloats; ++j) sum += data[r.slot][j] * float(j + lane);
    if (!kAllArrive) __syncwarp();
    if (kAllArrive || lane == 0) barrier_arrive(free + r.slot);
  }
  out[threadIdx.x] = sum;
}

template <bool kArrives>
__global__ void hand_over(const float* in, float* out) {
  enum : u32 { kFull = 1, kFree = 2 };
  __shared__ float data[kReaders];
  const auto tell = [](u32 barrier) {
    if (kArrives)
      named_arrive(barrier, 2 * kReaders);
    else
      named_sync(barrier, 2 * kReaders);
  };
  const int thread = threadIdx.x % kReaders;
  float sum = 0;
  for (int i = 0; i < kSteps; ++i)
    if (threadIdx.x >= kReaders) {
      if (i > 0) named_sync(kFree, 2 * kReaders);
      data[thread] = in[i * kFloats + thread % kFloats] * float(thread % kFloats + 31);
      tell(kFull);
    } else {
      named_sync(kFull, 2 * kReaders);
      for (int j = 0; j < kFloats; ++j) sum += data[(thread + j) % kReaders];
      if (i + 1 < kSteps) tell(kFree);
    }
  if (threadIdx.x < kReaders) out[thread] = sum;
}

int main(int argc, char** argv) {
  float host[kFloats * kSteps], sums[kReaders], *in, *out, expected = 0;
  for (int i = 0; i < kFloats * kSteps; ++i) host[i] = float(i % 7);
  for (int i = 0; i < kFloats * kSteps; ++i) expected += host[i] * float(i % kFloats + 31);
  cudaMalloc(&in, sizeof host), cudaMalloc(&out, sizeof sums);
  cudaMemcpy(in, host, sizeof host, cudaMemcpyHostToDevice);
  const char* way = argc > 1 ? argv[1] : "all";
  if (std::strcmp(way, "elected") == 0)
    ring<false><<<1, kReaders + 32>>>(in, out);
  else if (std::strcmp(way, "sync") == 0)
    hand_over<false><<<1, 2 * kReaders>>>(in, out);
  else if (std::strcmp(way, "arrive") == 0)
    hand_over<true><<<1, 2 * kReaders>>>(in, out);
  else
    ring<true><<<1, kReaders + 32>>>(in, out);
  cudaMemcpy(sums, out, sizeof sums, cudaMemcpyDeviceToHost);
  std::printf("%s, last sum %s\n", cudaGetErrorString(cudaGetLastError()),
              sums[kReaders - 1] == expected ? "right" : "wrong");
  return sums[kReaders - 1] == expected ? 0 : 1;
}
