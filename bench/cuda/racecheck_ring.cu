// What compute-sanitizer's racecheck makes of a ring of shared memory that the copy engine fills.
//
//   nvcc -std=c++17 -I. -gencode arch=compute_90a,code=sm_90a -o ring bench/cuda/racecheck_ring.cu
//   for arrivals in all elected; do compute-sanitizer --tool racecheck ./ring $arrivals; done
//
// Readers wait for a slot's `full`, read it, and arrive at its `free`, for which the next load
// waits. `all`: every reading thread arrives: no hazard. `elected`: __syncwarp, then one lane of
// each warp arrives for all, as our kernels do: hazards are reported between the other lanes' reads
// and the next load, though __syncwarp orders memory accesses among the lanes. Both give the same
// sums.
#include <cstdio>
#include <cstring>

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

int main(int argc, char** argv) {
  float host[kFloats * kSteps], sums[kReaders], *in, *out, expected = 0;
  for (int i = 0; i < kFloats * kSteps; ++i) host[i] = float(i % 7);
  for (int i = 0; i < kFloats * kSteps; ++i) expected += host[i] * float(i % kFloats + 31);
  cudaMalloc(&in, sizeof host), cudaMalloc(&out, sizeof sums);
  cudaMemcpy(in, host, sizeof host, cudaMemcpyHostToDevice);
  if (argc > 1 && std::strcmp(argv[1], "elected") == 0)
    ring<false><<<1, kReaders + 32>>>(in, out);
  else
    ring<true><<<1, kReaders + 32>>>(in, out);
  cudaMemcpy(sums, out, sizeof sums, cudaMemcpyDeviceToHost);
  std::printf("%s, last sum %s\n", cudaGetErrorString(cudaGetLastError()),
              sums[kReaders - 1] == expected ? "right" : "wrong");
  return sums[kReaders - 1] == expected ? 0 : 1;
}
