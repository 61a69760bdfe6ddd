// Each piece of tegula/kernels/cuda/ptx alone, in a kernel that does nothing else; what they must
// give is computed by tests/kernels/cuda/ptx_gpu_test.cpp.
#include "tegula/kernels/cuda/ptx/cp_async.cuh"
#include "tegula/kernels/cuda/ptx/mbarrier.cuh"
#include "tegula/kernels/cuda/ptx/mma.cuh"
#include "tegula/kernels/cuda/ptx/sync.cuh"
#include "tegula/kernels/cuda/ptx/types.cuh"

#if TEGULA_PROBE_HOPPER
#include "tegula/kernels/cuda/ptx/tma.cuh"
#include "tegula/kernels/cuda/ptx/wgmma.cuh"
#endif

using namespace tegula::cuda;

// Pairs of elements, their values again, 2^x, and zero + 0 · x. One warp.
extern "C" __global__ void probe_types(const float* in, u32* packed, float* again, float* exp2,
                                       u32* zero) {
  const int i = threadIdx.x;
  packed[i] = pack_element(in[2 * i], in[2 * i + 1]);
  again[2 * i] = element_to_float(u16(packed[i]));
  again[2 * i + 1] = element_to_float(u16(packed[i] >> 16));
  exp2[i] = exp2_approx(in[i]);
  zero[i] = times_zero_plus(packed[i], 0);
}

// d[16][8] = a[16][16] b[16][8], all in rows of memory. One warp.
extern "C" __global__ void probe_mma(const u16* a, const u16* b, float* d) {
  const int g = threadIdx.x / 4, t = threadIdx.x % 4;
  const auto pair_of_a = [&](int row, int k) {
    return u32(a[row * 16 + k]) | u32(a[row * 16 + k + 1]) << 16;
  };
  const auto pair_of_b = [&](int k) { return u32(b[k * 8 + g]) | u32(b[(k + 1) * 8 + g]) << 16; };
  float sum[4] = {};
  mma_m16n8k16(sum, pair_of_a(g, 2 * t), pair_of_a(g + 8, 2 * t), pair_of_a(g, 2 * t + 8),
               pair_of_a(g + 8, 2 * t + 8), pair_of_b(2 * t), pair_of_b(2 * t + 8));
  for (int i = 0; i < 4; ++i) d[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = sum[i];
}

// 32 rows of 8 elements through ldmatrix, plain and transposed, and movmatrix; by fragments. One
// warp.
extern "C" __global__ void probe_ldmatrix(const u16* in, u32* plain, u32* transposed, u32* moved) {
  __shared__ __align__(128) u16 rows[32 * 8];
  for (int i = 0; i < 8; ++i) rows[threadIdx.x * 8 + i] = in[threadIdx.x * 8 + i];
  __syncwarp();
  u32 r[4];
  ldmatrix(smem_address(rows + threadIdx.x * 8), r);
  for (int i = 0; i < 4; ++i) plain[i * 32 + threadIdx.x] = r[i];
  moved[threadIdx.x] = transpose_8x8(r[0]);
  ldmatrix_transposed(smem_address(rows + threadIdx.x * 8), r);
  for (int i = 0; i < 4; ++i) transposed[i * 32 + threadIdx.x] = r[i];
}

// 16 bytes a thread, of which the first bytes[i] come and the rest are zero; two groups, the older
// one waited for first. One warp.
extern "C" __global__ void probe_cp_async(const char* in, const int* bytes, char* out) {
  __shared__ __align__(16) char to[2 * 512];
  for (int i = 0; i < 1024; ++i) to[i] = 0x55;
  __syncwarp();
  for (int half = 0; half < 2; ++half) {
    cp_async(smem_address(to + 512 * half + 16 * threadIdx.x), in + 512 * half + 16 * threadIdx.x,
             bytes[threadIdx.x]);
    cp_async_commit();
  }
  cp_async_wait<1>();
  for (int i = 0; i < 16; ++i) out[16 * threadIdx.x + i] = to[16 * threadIdx.x + i];
  cp_async_wait<0>();
  for (int i = 0; i < 16; ++i) out[512 + 16 * threadIdx.x + i] = to[512 + 16 * threadIdx.x + i];
}

// Warp 0 hands a counter to warp 1 and back, by named barriers of 64 threads. Two warps.
extern "C" __global__ void probe_named_barrier(int rounds, int* out) {
  __shared__ int box;
  if (threadIdx.x < 32) {
    for (int i = 0; i < rounds; ++i) {
      if (threadIdx.x == 0) box = i + 1;
      named_arrive(1, 64);
      named_sync(2, 64);
    }
  } else {
    int sum = 0;
    for (int i = 0; i < rounds; ++i) {
      named_sync(1, 64);
      sum += *static_cast<volatile int*>(&box);
      named_arrive(2, 64);
    }
    if (threadIdx.x == 32) *out = sum;
  }
}

#if TEGULA_PROBE_HOPPER

// out[0..3] += 1, 2, 3, 4 of every thread.
extern "C" __global__ void probe_global_add(float* out) { global_add(out, 1.f, 2.f, 3.f, 4.f); }

// A ring of three slots between a producer and a consumer warp. Two warps.
extern "C" __global__ void probe_mbarrier(int n, int* out) {
  __shared__ Barrier full[3], free[3];
  __shared__ int slots[3][32];
  if (threadIdx.x == 0) {
    for (int i = 0; i < 3; ++i) barrier_init(full + i, 32), barrier_init(free + i, 1);
    barrier_init_fence();
  }
  __syncthreads();
  Ring<3> ring;
  const int lane = threadIdx.x % 32;
  for (int i = 0; i < n; ++i, ring.advance()) {
    if (threadIdx.x < 32) {
      barrier_wait(free + ring.slot, ring.parity ^ 1);
      slots[ring.slot][lane] = 32 * i + lane;
      barrier_arrive(full + ring.slot);
    } else {
      barrier_wait(full + ring.slot, ring.parity);
      out[32 * i + lane] = slots[ring.slot][lane ^ 1];
      __syncwarp();
      if (lane == 0) barrier_arrive(free + ring.slot);
    }
  }
}

// The box of 64 columns and 16 rows from (column, row, head, batch) of a tensor, through shared
// memory: what lies in `out` is box[row][column], and `again` gets it by a store of the copy
// engine; `run` bytes come without a map. One warp.
extern "C" __global__ void probe_tma(const __grid_constant__ TensorMap in,
                                     const __grid_constant__ TensorMap again, int column, int row,
                                     int head, int batch, u16* out, const char* straight, int run,
                                     char* straight_out) {
  __shared__ __align__(1024) char box[16 * kRowBytes];
  __shared__ __align__(16) char line[256];
  __shared__ Barrier full;
  if (threadIdx.x == 0) {
    prefetch_map(&in);
    barrier_init(&full, 1);
    barrier_init_fence();
    barrier_arrive_expect(&full, sizeof box + run);
    tma_load(box, &in, &full, kEvictNormal, column, row, head, batch);
    bulk_load(line, straight, 16, &full);
    bulk_load(line + 16, straight + 16, run - 16, &full, kEvictFirst);
  }
  __syncwarp();
  barrier_wait(&full, 0);
  for (int i = threadIdx.x; i < 16 * 64; i += 32)
    out[i] = *reinterpret_cast<u16*>(box + swizzled(i / 64, i % 64 / 8) + i % 8 * 2);
  for (int i = threadIdx.x; i < run; i += 32) straight_out[i] = line[i];
  __syncwarp();
  if (threadIdx.x == 0) {
    tma_store(&again, box, column, row, head, batch);
    tma_store_commit();
    tma_store_wait_read();
  }
}

// 128 floats of each block from shared memory to `stored`, and added to `added`; `seen` gets what
// the thread reads of its own store after waiting for it. One warp.
extern "C" __global__ void probe_bulk_out(const float* in, float* stored, float* added,
                                          float* seen) {
  __shared__ __align__(16) float data[128];
  for (int i = threadIdx.x; i < 128; i += 32) data[i] = in[128 * blockIdx.x + i];
  fence_async_proxy();
  __syncwarp();
  if (threadIdx.x == 0) {
    bulk_store(stored + 128 * blockIdx.x, data, sizeof data);
    bulk_add(added, data, sizeof data);
    tma_store_commit();
    tma_store_wait();
    seen[blockIdx.x] = *static_cast<volatile float*>(stored + 128 * blockIdx.x + 127);
  }
}

// stmatrix writes what ldmatrix reads. One warp.
extern "C" __global__ void probe_stmatrix(const u32* fragments, u16* out) {
  __shared__ __align__(128) u16 rows[32 * 8];
  const u32* r = fragments + 4 * threadIdx.x;
  stmatrix(smem_address(rows + threadIdx.x * 8), r[0], r[1], r[2], r[3]);
  __syncwarp();
  for (int i = 0; i < 8; ++i) out[threadIdx.x * 8 + i] = rows[threadIdx.x * 8 + i];
}

// Sums by their fragments, to rows of memory.
template <int kN>
__device__ void write_product(const float (&sum)[kN / 2], float* d) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int i = 0; i < kN / 2; ++i)
    d[(16 * warp + lane / 4 + i / 2 % 2 * 8) * kN + i / 4 * 8 + 2 * (lane % 4) + i % 2] = sum[i];
}

#if TEGULA_F8
// d[64][kN] = a[64][128] b[kN][128]ᵀ of e4m3, a from shared memory or from registers. Four warps.
template <int kN, bool kRegisters>
__device__ void product(const u8* a, const u8* b, float* d, char* smem) {
  char* b_at = smem + 64 * kRowBytes;
  for (int i = threadIdx.x; i < (64 + kN) * 128; i += 128)
    smem[swizzled(i / 128, i % 128 / 16) + i % 16] = char(i < 64 * 128 ? a[i] : b[i - 64 * 128]);
  fence_async_proxy();
  __syncthreads();
  float sum[kN / 2];
  u32 fragment[4][4];
  const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (u32 i = 0; i < 4; ++i)
    ldmatrix(smem_address(smem) + swizzled(16 * warp + (lane & 15), 2 * i + (lane >> 4)),
             fragment[i]);
  const SmemOperand of_a(smem_address(smem), 16, 8 * kRowBytes);
  const SmemOperand of_b(smem_address(b_at), 16, 8 * kRowBytes);
  fence_registers(sum);
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (kRegisters)
      Wgmma<kN>::template rs<false>(sum, fragment[i], of_b.at(32 * i), i > 0);
    else
      Wgmma<kN>::ss(sum, of_a.at(32 * i), of_b.at(32 * i), i > 0);
  }
  wgmma_commit();
  wgmma_wait<0>();
  fence_registers(sum);
  write_product<kN>(sum, d);
}

// Four bytes at a time, and their values again. One warp.
extern "C" __global__ void probe_f8(const float* in, u32* packed, float* again) {
  const float* x = in + 4 * threadIdx.x;
  packed[threadIdx.x] = pack_e4m3(x[0], x[1], x[2], x[3]);
  for (int i = 0; i < 4; ++i)
    again[4 * threadIdx.x + i] = element_to_float(u8(packed[threadIdx.x] >> (8 * i)));
}
#else
// d[64][kN] = a[64][64] b, each operand from shared memory in the ways that there are: `mode` 0: a
// and b K-major (b is [kN][64]); 1: both MN-major (a is [64 k][64], b [64 k][kN] in blocks of 64
// columns); 2: a in registers, b MN-major; 3: a in registers, b K-major. Four warps.
template <int kN, int kMode>
__device__ void product(const u16* a, const u16* b, float* d, char* smem) {
  constexpr bool kAMn = kMode == 1, kBMn = kMode == 1 || kMode == 2;
  char* b_at = smem + 64 * kRowBytes;
  for (int i = threadIdx.x; i < 64 * 64; i += 128)
    *reinterpret_cast<u16*>(smem + swizzled(i / 64, i % 64 / 8) + i % 8 * 2) = a[i];
  for (int i = threadIdx.x; i < 64 * kN; i += 128) {
    const int row = kBMn ? i / kN : i / 64, column = kBMn ? i % kN : i % 64;
    const int block = column / 64;  // of MN-major B
    *reinterpret_cast<u16*>(b_at + block * (64 * kRowBytes) + swizzled(row, column % 64 / 8) +
                            column % 8 * 2) = b[i];
  }
  fence_async_proxy();
  __syncthreads();
  float sum[kN / 2];
  u32 fragment[4][4];
  const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if constexpr (kMode >= 2)
    for (u32 i = 0; i < 4; ++i)
      ldmatrix(smem_address(smem) + swizzled(16 * warp + (lane & 15), 2 * i + (lane >> 4)),
               fragment[i]);
  const SmemOperand of_a(smem_address(smem), 64 * kRowBytes, 8 * kRowBytes);
  const SmemOperand of_b(smem_address(b_at), 64 * kRowBytes, 8 * kRowBytes);
  fence_registers(sum);
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const u64 keys = of_b.at(i * (kBMn ? 16 * kRowBytes : 32));
    if constexpr (kMode >= 2)
      Wgmma<kN>::template rs<kBMn>(sum, fragment[i], keys, i > 0);
    else
      Wgmma<kN>::template ss<kAMn, kBMn>(sum, of_a.at(i * (kAMn ? 16 * kRowBytes : 32)), keys,
                                         i > 0);
  }
  wgmma_commit();
  wgmma_wait<0>();
  fence_registers(sum);
  write_product<kN>(sum, d);
}
#endif

#define TEGULA_PROBE_WGMMA(N, MODE)                                                \
  extern "C" __global__ void __launch_bounds__(128)                                \
      probe_wgmma_##N##_##MODE(const InElement* a, const InElement* b, float* d) { \
    extern __shared__ __align__(1024) char smem[];                                 \
    product<N, MODE>(a, b, d, smem);                                               \
  }
#if TEGULA_F8
#define TEGULA_PROBE_WIDTH(N) TEGULA_PROBE_WGMMA(N, 0) TEGULA_PROBE_WGMMA(N, 1)
#else
#define TEGULA_PROBE_WIDTH(N) \
  TEGULA_PROBE_WGMMA(N, 0)    \
  TEGULA_PROBE_WGMMA(N, 1) TEGULA_PROBE_WGMMA(N, 2) TEGULA_PROBE_WGMMA(N, 3)
#endif
TEGULA_PROBE_WIDTH(64)
TEGULA_PROBE_WIDTH(96)
TEGULA_PROBE_WIDTH(128)
#if !TEGULA_F8
TEGULA_PROBE_WIDTH(80)
TEGULA_PROBE_WIDTH(112)
TEGULA_PROBE_WIDTH(192)
TEGULA_PROBE_WIDTH(256)
#endif

// One warpgroup gives its registers, the other takes them and holds 176 sums at once. Two
// warpgroups, compiled for 128 registers.
extern "C" __global__ void __launch_bounds__(256, 2) probe_registers(const float* in, float* out) {
  if (threadIdx.x < 128) {
    give_registers<40>();
    return;
  }
  take_registers<208>();
  float x[160];
#pragma unroll
  for (int i = 0; i < 160; ++i) x[i] = in[(i + threadIdx.x) % 256];
#pragma unroll 1
  for (int round = 0; round < 8; ++round)
#pragma unroll
    for (int i = 0; i < 160; ++i) x[i] = __fmaf_rn(x[i], 0.5f, x[(i + 1) % 160]);
  float sum = 0.f;
#pragma unroll
  for (int i = 0; i < 160; ++i) sum += x[i];
  out[threadIdx.x - 128] = sum;
}

// A grid that lets the next one start while it waits, and writes last; and that next one.
extern "C" __global__ void probe_first_grid(int* box) {
  start_grid_after();
  for (int i = 0; i < 200; ++i) __nanosleep(1000);
  box[blockIdx.x] = int(blockIdx.x) + 1;
}
extern "C" __global__ void probe_second_grid(const int* box, int n, int* sum) {
  wait_for_grid_before();
  int s = 0;
  for (int i = 0; i < n; ++i) s += box[i];
  sum[blockIdx.x] = s;
}

#endif  // TEGULA_PROBE_HOPPER
