// b as [n, k] of 16 bits, of matvec.cu, by mma.sync: 16 columns of b by 8 rows of a, or 8 columns
// and a half that nobody reads, where that makes more blocks. Without tensor cores, turning
// elements into f32 would take longer than reading them from the second row on.
//
// A block has kColumns columns of c, or several times so many in turn; its warps take 64 k of each,
// a line of memory, in turns. Their products of so many k are a sum of the tensor cores, which cut
// what they add, so only such short ones are theirs; a warp adds them in f32, and a tree joins the
// warps.
#pragma once

#include "tegula/kernels/cuda/matvec.cuh"
#include "tegula/kernels/cuda/ptx/cp_async.cuh"
#include "tegula/kernels/cuda/ptx/mma.cuh"

namespace tegula::cuda {

constexpr int kThreads = 128, kWarps = kThreads / 32, kColumns = TEGULA_COLUMNS;
constexpr int kHalves = kM > 8 ? 2 : 1;            // of the rows of a
constexpr int kPart = 64, kStep = kWarps * kPart;  // k of a warp and of a block at a time
constexpr int kPartBytes = 2 * kPart;              // of a column
static_assert(kColumns == 16 || kColumns == 8);
// A warp's steps are on their way in shared memory, a slot each: loads to registers a compiler
// would gather behind the products.
constexpr int kSlotBytes = kColumns * kPartBytes, kSlots = kRingBytes / kWarps / kSlotBytes;
// Rows of a beside them, so many of k. What begins with a program has them in shared memory.
constexpr int kChunk = (16 << 10) / 2 / kM / kStep * kStep, kRowVectors = kChunk / kVector;
// Calls that share a block's columns, to end with a program that reads what they all make.
#ifdef TEGULA_CALLS
constexpr int kCalls = TEGULA_CALLS;
#else
constexpr int kCalls = 1;
#endif
constexpr int kOfCall = kColumns / kCalls;
static_assert(kOfCall * kCalls == kColumns);
constexpr int kSums = kShards * kWarps * kM * kColumns;
constexpr int kRoom = kIsAfter || kM * kRowVectors < kSums / 4 ? (kSums + 3) / 4 : kM * kRowVectors;
static_assert(kSlots > 1 && kChunk > 0);

// Where 16 bytes of a row of eight such pieces, or more, lie: eight rows' on all banks.
__device__ __forceinline__ int place(int row, int piece) { return piece ^ row % 8; }

// A chunk of a[first …], on its way to shared memory while the one before is used; zeros behind
// its end.
struct Rows {
  static constexpr int kAll = kM * kRowVectors, kEach = (kAll + kThreads - 1) / kThreads;
  uint4 x[kEach];
  int k0 = -1;

  __device__ __forceinline__ void ask(const MatvecParams& p, const In* a, int first, int from) {
    k0 = from;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int at = static_cast<int>(threadIdx.x) + i * kThreads;
      const int m = at / kRowVectors, k = k0 + at % kRowVectors * kVector;
      x[i] = make_uint4(0, 0, 0, 0);
      if (at < kAll && k < p.k)
        x[i] = *reinterpret_cast<const uint4*>(row_of_a(p, a, first + m) + k);
    }
  }
  __device__ __forceinline__ void put(uint4* rows) const {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int at = static_cast<int>(threadIdx.x) + i * kThreads, m = at / kRowVectors;
      if (at < kAll) rows[m * kRowVectors + place(m, at % kRowVectors)] = x[i];
    }
  }
};

// Blocks: ⌈⌈n / kOfCall⌉ / passes⌉ for each kM rows. Calls differ by b and c alone; end_of(m, n,
// given) is told what each has stored there.
template <class Begin, class End>
__device__ __forceinline__ void run(const MatvecParams* calls, int block, Begin begin, End end_of) {
  const MatvecParams& p = *calls;
  __shared__ __align__(kRingAlign) char slots[kWarps][kSlots * kSlotBytes];
  __shared__ __align__(128) uint4 rows[kRoom];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int n_groups = (p.n + kOfCall - 1) / kOfCall;
  const int n_blocks = (n_groups + p.passes - 1) / p.passes;  // of a pass
  const int first = block / n_blocks * kM;
  const int shard_k = p.k / kShards, of_warp = warp * kPart;
  int group = block % n_blocks;

  // A lane copies a piece of every fourth column, so that eight lanes copy a line.
  const int own = of_warp + lane % 8 * kVector;
  const u32 ring = smem_address(slots[warp]);
  const In* b[kColumns / 4];
  const auto find_b = [&](int n0) {
#pragma unroll
    for (int i = 0; i < kColumns / 4; ++i) {  // columns past the last are the last, and not written
      const int column = lane / 8 + 4 * i;
      const MatvecParams& of = calls[column / kOfCall];
      b[i] = static_cast<const In*>(of.b) +
             static_cast<long long>(min(n0 + column % kOfCall, p.n - 1)) * of.ldb + own;
    }
  };
  find_b(group * kOfCall);
  // The step that is asked for next, of a shard that ends there; of a group that may be the next.
  int asked = 0, asked_end = shard_k, asked_group = group;
  const auto ask = [&](u32 slot) {
    const u32 bytes = own + asked < min(asked_end, p.k) ? 16 : 0;
#pragma unroll
    for (int i = 0; i < kColumns / 4; ++i) {
      const int column = lane / 8 + 4 * i;
      cp_async(ring + slot + column * kPartBytes + 16 * place(column, lane % 8), b[i] + asked,
               bytes);
    }
    cp_async_commit();
    asked += kStep;
    if (kShards > 1 && asked >= asked_end) asked = asked_end, asked_end += shard_k;
    if (asked >= p.k && asked_group + n_blocks < n_groups) {
      asked_group += n_blocks;
      asked = 0, asked_end = shard_k;
      find_b(asked_group * kOfCall);
    }
  };
#pragma unroll
  for (int s = 0; s < kSlots; ++s) ask(s * kSlotBytes);
  const In* const a = begin();

  // The addresses that this lane gives to ldmatrix: of b a column by halves of 16 k, of a a row by
  // quarters of 32.
  const u32 of_b = lane % kColumns * kPartBytes + 16 * place(lane % kColumns, lane / 16);
  const auto of_a = [&](int half, int piece, int chunk) {  // piece: of 8 k, of all
    const int m = min(half * 8 + lane % 8, kM - 1), at = piece + lane / 8;
    if (kIsAfter) return smem_address(row_of_a(p, a, first + m) + min(at * kVector, p.k - kVector));
    // A step may end a shard before the chunk's end, and itself behind it.
    int within = at - chunk / kVector;
    if (kShards > 1) within = min(within, kRowVectors - 1);
    return smem_address(rows + m * kRowVectors + place(m, within));
  };
  u32 slot = 0;
  for (; group < n_groups; group += n_blocks) {
    const int n0 = group * kOfCall;
    Rows next;
    int chunk = -kChunk;
    float sums[kShards][kHalves][4] = {};
#pragma unroll
    for (int shard = 0; shard < kShards; ++shard) {
      const int end = (shard + 1) * shard_k;
      for (int k0 = shard * shard_k; k0 < end; k0 += kStep) {
        if (!kIsAfter && min(k0 + kStep, end) > chunk + kChunk) {
          if (next.k0 != k0) next.ask(p, a, first, k0);
          chunk = k0;
          __syncthreads();
          next.put(rows);
          __syncthreads();
          if (chunk + kChunk < p.k) next.ask(p, a, first, chunk + kChunk);
        }
        cp_async_wait<kSlots - 1>();
        __syncwarp();
        float part[kHalves][4] = {};
#pragma unroll
        for (int k = 0; k < kPart; k += 32) {
          const int at = k0 + of_warp + k;
          u32 x[kHalves][4];
#pragma unroll
          for (int half = 0; half < kHalves; ++half) {
            ldmatrix(of_a(half, at / kVector, chunk), x[half]);
            // Behind the end of a shard, or of what a program made, is something else.
#pragma unroll
            for (int i = 0; i < 4; ++i)
              if ((kShards > 1 || kIsAfter) && at + 8 * i >= end) x[half][i] = 0;
          }
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            u32 y[4];
            ldmatrix(ring + slot + (of_b ^ (k / 16 + j) << 5), y);
#pragma unroll
            for (int half = 0; half < kHalves; ++half)
              mma_m16n8k16(part[half], y[0], y[1], y[2], y[3], x[half][2 * j], x[half][2 * j + 1]);
          }
        }
        __syncwarp();
#pragma unroll
        for (int half = 0; half < kHalves; ++half)
#pragma unroll
          for (int e = 0; e < 4; ++e) sums[shard][half][e] += part[half][e];
        ask(slot);
        slot = slot == (kSlots - 1) * kSlotBytes ? 0 : slot + kSlotBytes;
      }
    }

    // [shard][warp][m][column], where rows were.
    const auto sum_at = [&](int shard, int of, int m, int n) {
      return reinterpret_cast<float*>(rows) + ((shard * kWarps + of) * kM + m) * kColumns + n;
    };
    __syncthreads();
#pragma unroll
    for (int shard = 0; shard < kShards; ++shard)
#pragma unroll
      for (int half = 0; half < kHalves; ++half)
#pragma unroll
        for (int e = 0; e < (kColumns == 16 ? 4 : 2); ++e)
          if (const int m = 8 * half + 2 * t + e % 2; m < kM)
            *sum_at(shard, warp, m, g + e / 2 * 8) = sums[shard][half][e];
    __syncthreads();
    for (int at = threadIdx.x; at < kM * kOfCall; at += kThreads) {
      const int m = at / kOfCall, n = at % kOfCall;
      if (first + m >= p.m || n0 + n >= p.n) continue;
      Out given[kCalls];
#pragma unroll
      for (int call = 0; call < kCalls; ++call) {
        const int column = call * kOfCall + n;
        float of[kShards];
#pragma unroll
        for (int shard = 0; shard < kShards; ++shard)
          of[shard] = (*sum_at(shard, 0, m, column) + *sum_at(shard, 1, m, column)) +
                      (*sum_at(shard, 2, m, column) + *sum_at(shard, 3, m, column));
        count_flops(2ULL * p.k);
        given[call] = store(calls[call], first + m, n0 + n, sum_of_neighbours(of));
      }
      end_of(first + m, n0 + n, given);
    }
  }
}

template <class Begin>
__device__ __forceinline__ void run(const MatvecParams& p, int block, Begin begin) {
  run(&p, block, begin, [](int, int, const Out*) {});
}

}  // namespace tegula::cuda
