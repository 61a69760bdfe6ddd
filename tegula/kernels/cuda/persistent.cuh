// Launches in a row as one kernel: as many blocks as multiprocessors, which do a step after the
// other and wait for one another where a step needs what others make. For chains of small products
// (decoding): launches and their waits would take as long as reading the weights.
//
// A warp of each block does nothing but feed: it asks for the weights of all steps in their order,
// as far ahead as the ring has room, while the others wait, rotate or attend (but see kUnderWay).
// Nothing may write weights while the kernel runs. They leave the L2 first: what blocks hand to
// each other, keys and values stay. A product's columns go round the blocks in units of eight, and
// a unit's stages round four groups of warps; a warp multiplies 64 k of a unit (a part) by tensor
// cores, all parts lie beside each other in shared memory, and are added in the order of
// matvec_mma.cuh: the bits are the same.
//
// The text that includes this has a function for each kind of step, and one `run_step` that calls
// them (persistent_text.h). __syncthreads() in them is that of the workers.
//
// Variant, by -D: TEGULA_M rows of a, up to 8; TEGULA_STAGES of the ring, of which blocks that
// attend lend the first TEGULA_LENT to attention; TEGULA_SCRATCH_BYTES of shared memory for a
// step's a and parts; TEGULA_RECORD_BYTES of a step's record; TEGULA_F16.
#pragma once

#include "tegula/kernels/cuda/count.cuh"
#include "tegula/kernels/cuda/persistent_params.h"
#include "tegula/kernels/cuda/ptx/bulk.cuh"
#include "tegula/kernels/cuda/ptx/cp_async.cuh"
#include "tegula/kernels/cuda/ptx/mbarrier.cuh"
#include "tegula/kernels/cuda/ptx/mma.cuh"
#include "tegula/kernels/cuda/ptx/order.cuh"
#include "tegula/kernels/cuda/ptx/sync.cuh"
#include "tegula/kernels/cuda/ptx/types.cuh"

namespace tegula::cuda {

// The feeding warp does not come to it.
__device__ __forceinline__ void sync_workers() { named_sync(1, kWorkers); }
#define __syncthreads() ::tegula::cuda::sync_workers()

namespace persistent {

constexpr int kM = TEGULA_M, kStages = TEGULA_STAGES, kLent = TEGULA_LENT;
constexpr int kScratchBytes = TEGULA_SCRATCH_BYTES, kRecordBytes = TEGULA_RECORD_BYTES;
constexpr int kWorkerWarps = kWorkers / 32, kThreads = kWorkers + kFeeders;
constexpr int kRecords = kPersistentRecords;
// Each group of warps has a stage for itself.
constexpr int kGroups = 4, kGroupWarps = kWorkerWarps / kGroups;
// Stages that memory is asked for at a time: what the workers read and write waits behind them.
// From when a block has multiplied until its results are out it asks for none: that would delay
// these, and those who still multiply. Then it asks for fewer at a time, until it multiplies again:
// for one where the products had no more stages than the ring has, as the steps that follow wait
// for each other more than for weights. They must leave room for the groups. A stage's parity is
// that of the one two laps before, so a group that waits while the one a lap before is still to
// come would go on at once. But it has had its last stage, kGroups before, and that was asked for
// when all up to kUnderWay before had come.
constexpr int kUnderWay = 3, kBetween = 2, kQuiet = 1;
static_assert(kUnderWay + kGroups <= kStages - kLent);
// Out of the 96 that each thread of a block begins with: workers get what feeders leave.
constexpr int kWorkerRegisters = 112, kFeederRegisters = 32;
static_assert(kWorkers * kWorkerRegisters + kFeeders * kFeederRegisters <= 96 * kThreads);
static_assert(kM <= 8 && kStageParts % kGroupWarps == 0);
static_assert(kRecordBytes % 16 == 0);

// A slot of the ring, from slot `begin` on.
struct Place {
  u32 slot, parity, begin;

  __device__ __forceinline__ void advance(u32 n) {
    for (slot += n; slot >= kStages; parity ^= 1) slot -= kStages - begin;
  }
  // By no more stages than the ring has: without a loop.
  __device__ __forceinline__ void advance_few(u32 n) {
    slot += n;
    if (slot >= kStages) slot -= kStages - begin, parity ^= 1;
  }
  // The stage n before, of as many as the ring has at most.
  __device__ __forceinline__ Place before(u32 n) const {
    const bool is_of_lap = slot >= begin + n;
    return {is_of_lap ? slot - n : slot + kStages - begin - n, is_of_lap ? parity : parity ^ 1,
            begin};
  }
};

struct Shared {
  char scratch[kScratchBytes];  // of the running step; attention has lent stages, too
  char ring[kStages][kStageBytes];
  char records[kRecords][kRecordBytes];
  Barrier full[kStages], empty[kStages];
  // The next step's number; in registers it would be attention's to spill.
  int step;
  Place next;  // its first stage
  // Stages that the feeding warp may have under way, now and once the results are out.
  u32 under_way, under_way_then;
};
// The shared memory that a step of attention may use.
constexpr int kAttentionBytes = kScratchBytes + kLent * kStageBytes;

// The first unit or block of a step that is this block's; the next is gridDim.x later.
__device__ __forceinline__ int own(int first) {
  const int at = static_cast<int>(blockIdx.x) - first;
  return at < 0 ? at + static_cast<int>(gridDim.x) : at;
}

// x is known here, and not only where it is used, behind a wait.
template <class T>
__device__ __forceinline__ void settle(T& x) {
  asm volatile("" : "+r"(x));
}

// threadIdx.x, which the compiler cannot know to be the same at each step: what it computed of it
// before the first would fill registers that attention needs.
__device__ __forceinline__ int this_thread() {
  int x = static_cast<int>(threadIdx.x);
  asm volatile("" : "+r"(x));
  return x;
}

// How many of a product's units are this block's.
__device__ __forceinline__ int n_own(const PersistentProduct& p) {
  return p.n_whole + (own(p.first) < p.n_left ? 1 : 0);
}

// The part of a product's b that a lane needs: its column of each unit.
struct Columns {
  const u16* b;
  long long ldb;
  int n, k, of_call, first, n_units;

  __device__ Columns(const PersistentProduct& p) {
    b = static_cast<const u16*>(p.b[threadIdx.x % kUnitColumns / 2]);
    ldb = p.ldb, n = p.n, k = p.k, first = own(p.first), n_units = n_own(p);
    of_call = kUnitColumns / p.n_calls;
  }
};

// Calls of(task) of the tasks of a step that are this block's, or, of a warp's tasks, this warp's.
template <bool kOfWarp, class Of>
__device__ __forceinline__ void each_task(const PersistentStep& step, Of of) {
  const int warp = kOfWarp ? threadIdx.x / 32 : 0, n_warps = kOfWarp ? kWorkerWarps : 1;
  const int mine = own(step.first), n_blocks = static_cast<int>(gridDim.x);
  if (step.n_owners > 0 && mine >= step.n_owners) return;
  const int by = step.n_owners > 0 ? 1 : n_blocks;
  for (int task = (step.n_owners > 0 ? 0 : mine) + warp * by; task < step.n_tasks;
       task += n_warps * by)
    of(task);
}

// Which call has a task.
template <int kCalls>
__device__ __forceinline__ int call_of(const PersistentCalls& calls, int task) {
  int call = 0;
#pragma unroll
  for (int k = 1; k < kCalls; ++k) call += task >= calls.first[k];
  return call;
}

// By one warp, to the end of the last step.
__device__ inline void feed(const PersistentParams& p, Shared& s, Place at) {
  const int lane = threadIdx.x % 32;
  Columns next = p.products[0];
  for (int i = 0; i < p.n_products; ++i) {
    const Columns of = next;
    if (i + 1 < p.n_products) next = p.products[i + 1];
    const int column = lane % of.of_call;
    for (int round = 0; round < of.n_units; ++round) {
      const int unit = of.first + round * static_cast<int>(gridDim.x);
      // Columns past the last are the last, and not written.
      const u16* from = of.b + min(unit * of.of_call + column, of.n - 1) * of.ldb;
      for (int k = 0; k < of.k; k += kStageK) {
        const u32 bytes = 2 * min(kStageK, of.k - k);
        barrier_wait(&s.empty[at.slot], at.parity ^ 1);
        // The stage so many before has come; where there was none, a fresh barrier says so.
        u32 under_way;
        while ((under_way = load_relaxed(&s.under_way)) == 0) {
        }
        const Place before = at.before(under_way);
        barrier_wait(&s.full[before.slot], before.parity);
        if (lane == 0) barrier_arrive_expect(&s.full[at.slot], kUnitColumns * bytes);
        __syncwarp();
        if (lane < kUnitColumns)
          bulk_load(s.ring[at.slot] + lane * kStageColumnBytes, from + k, bytes, &s.full[at.slot],
                    kEvictFirst);
        at.advance_few(1);
      }
    }
  }
}

template <bool kOut16>
struct Result {
  using Type = u16;
  static __device__ u16 rounded(float x) { return static_cast<u16>(pack_element(x, 0.f)); }
};
template <>
struct Result<false> {
  using Type = float;
  static __device__ float rounded(float x) { return x; }
};

// The sum of the parts of n units of a step's products, from this block's unit `first` on:
// four neighbours take every fourth part of a column, and a tree joins them. kEnds: end_of(p, m, n,
// given) is told what each call has stored.
template <bool kOut16, int kCalls, bool kEnds, int kProducts, int kK, class End>
__device__ __forceinline__ void add_parts(const PersistentProduct* of, int first, int n_units,
                                          const float* parts, End end_of) {
  using R = Result<kOut16>;
  constexpr int kOfCall = kUnitColumns / kCalls;
  constexpr int kParts = kK / kPartK;
  for (int at = this_thread(); at < n_units * kM * 32; at += kWorkers) {
    const int way = at % 4, column = at / 4 % kUnitColumns, m = at / 32 % kM, unit = at / (32 * kM);
    int product = 0, round = first + unit;
#pragma unroll
    for (int i = 1; i < kProducts; ++i) {
      const int before = n_own(of[product]);
      if (product == i - 1 && round >= before) round -= before, product = i;
    }
    const PersistentProduct& p = of[product];
    const int n = (own(p.first) + round * static_cast<int>(gridDim.x)) * kOfCall + column % kOfCall;
    const bool is_there = way == 0 && n < p.n;
    auto* const to = static_cast<typename R::Type*>(p.c[column / 2]) + m * p.ldc + n;
    const float* from = parts + (unit * kParts * kM + m) * kUnitColumns + column;
    float sum = 0;
#pragma unroll 8
    for (int part = way; part < kParts; part += 4) sum += from[part * kM * kUnitColumns];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    const auto result = R::rounded(sum);
    if (is_there) {
      count_flops(2ULL * kK);
      *to = result;
    }
    if constexpr (kEnds) {
      typename R::Type given[kCalls];
#pragma unroll
      for (int call = 0; call < kCalls; ++call)
        given[call] = static_cast<typename R::Type>(
            __shfl_sync(0xffffffffu, result, (call * kOfCall + column % kOfCall) * 4));
      if (is_there && column < kOfCall) end_of(p, m, n, given);
    }
  }
}

// The products of kN parts of a, kGroupWarps apart, and those of a stage, each for itself: `to` is
// this warp's first one's.
template <int kN>
__device__ __forceinline__ void multiply_parts(u32 a, u32 b, int lane, float* to) {
  constexpr int kPartBytes = 2 * kPartK * kGroupWarps;
  float sums[kN][4] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    u32 x[kN][4], y[kN][4];
#pragma unroll
    for (int i = 0; i < kN; ++i) {
      ldmatrix(a + kPartBytes * i + 64 * half, x[i]);
      ldmatrix(b + kPartBytes * i + 64 * half, y[i]);
    }
#pragma unroll
    for (int quarter = 0; quarter < 4; quarter += 2)
#pragma unroll
      for (int i = 0; i < kN; ++i)
        mma_m16n8k16(sums[i], y[i][quarter], y[i][quarter], y[i][quarter + 1], y[i][quarter + 1],
                     x[i][quarter], x[i][quarter + 1]);
  }
#pragma unroll
  for (int i = 0; i < kN; ++i)
#pragma unroll
    for (int e = 0; e < 2; ++e)
      if (const int m = 2 * (lane % 4) + e; m < kM)
        to[(i * kGroupWarps * kM + m) * kUnitColumns] = sums[i][e];
}

// Products of one a: read() waits for it, and gives it in shared memory, kM rows of kK without
// gaps. Stages go round the groups of warps.
template <bool kOut16, int kCalls, bool kEnds, int kProducts, int kK, class Read, class End>
__device__ __forceinline__ void multiply(const PersistentStep& step, const PersistentProduct* of,
                                         Shared& s, Read read, End end_of) {
  const int thread = this_thread(), lane = thread % 32, warp = thread / 32 % kGroupWarps;
  constexpr int kParts = kK / kPartK, kOfUnit = (kK + kStageK - 1) / kStageK;  // stages
  float* const parts = reinterpret_cast<float*>(s.scratch + step.parts_at);
  constexpr int kPartsAtOnce = kM < 4 ? 4 : 2;  // as many as registers hold
  int n_units = 0;
#pragma unroll
  for (int i = 0; i < kProducts; ++i) n_units += n_own(of[i]);
  // The address that this lane gives to ldmatrix: of a row, or a column of b, by quarters of 32 k.
  u32 of_a = min(lane % 8, kM - 1) * (2 * kK) + lane / 8 * 16;
  u32 of_b =
      smem_address(s.ring) + lane % 8 * kStageColumnBytes + lane / 8 * 16 + warp * 2 * kPartK;
  u32 stage = thread / 32 / kGroupWarps;  // of all of this block's
  Place mine = s.next;
  mine.advance_few(stage);
  settle(n_units), settle(of_a), settle(of_b), settle(mine.slot), settle(mine.parity);
  of_a += smem_address(read());
  if (thread == 0) {
    const bool is_long = n_units * kOfUnit > kStages - kLent;
    store_relaxed(&s.under_way, is_long ? kUnderWay : kQuiet);
    s.under_way_then = is_long ? kBetween : kQuiet;
  }
  for (int first = 0; first < n_units; first += step.at_once) {
    const int n = min(step.at_once, n_units - first);
    const u32 end = (first + n) * kOfUnit;
    for (; stage < end; mine.advance_few(kGroups), stage += kGroups) {
      const int unit = stage / kOfUnit - first, of_unit = stage % kOfUnit;
      const int part = of_unit * kStageParts + warp;
      const u32 from_a = of_a + 2 * kPartK * part, from_b = of_b + kStageBytes * mine.slot;
      float* const to = parts + (unit * kParts + part) * kM * kUnitColumns + lane / 4;
      barrier_wait(&s.full[mine.slot], mine.parity);
      if (kParts % kStageParts == 0 || kParts >= (of_unit + 1) * kStageParts) {
#pragma unroll 1
        for (int i = 0; i < kStageParts; i += kPartsAtOnce * kGroupWarps)
          multiply_parts<kPartsAtOnce>(from_a + 2 * kPartK * i, from_b + 2 * kPartK * i, lane,
                                       to + i * kM * kUnitColumns);
      } else {
        for (int i = 0; part + i < kParts; i += kGroupWarps)
          multiply_parts<1>(from_a + 2 * kPartK * i, from_b + 2 * kPartK * i, lane,
                            to + i * kM * kUnitColumns);
      }
      __syncwarp();
      if (lane == 0) barrier_arrive(&s.empty[mine.slot]);
    }
    sync_workers();
    if (thread == 0 && first + n == n_units) store_relaxed(&s.under_way, 0);
    add_parts<kOut16, kCalls, kEnds, kProducts, kK>(of, first, n, parts, end_of);
    if (first + n < n_units) sync_workers();
  }
  // All have read it before they met; without units nobody meets.
  if (thread == 0 && n_units > 0) s.next.advance(n_units * kOfUnit);
}

// The rows of a, kM of k elements, to the scratch.
template <int kK>
__device__ __forceinline__ const u16* load_rows(const void* a, long long lda, Shared& s) {
  uint4* const to = reinterpret_cast<uint4*>(s.scratch);
  constexpr int kOfRow = kK / 8;
  for (int i = threadIdx.x; i < kM * kOfRow; i += kWorkers)
    to[i] = *reinterpret_cast<const uint4*>(static_cast<const u16*>(a) + i / kOfRow * lda +
                                            i % kOfRow * 8);
  sync_workers();
  return reinterpret_cast<const u16*>(s.scratch);
}

__device__ __forceinline__ void load_record(const PersistentParams& p, int step, Shared& s) {
  const int at = 16 * this_thread();
  if (step < p.n_steps && at < kRecordBytes)
    cp_async(smem_address(s.records[step % kRecords] + at),
             p.steps + static_cast<long long>(step) * kRecordBytes + at, 16);
  cp_async_commit();
}

__device__ __forceinline__ void note_time(const PersistentParams& p, int step) {
  if (blockIdx.x == 0 && threadIdx.x == 0) p.clocks[step] = clock64();
}

// run_step(step, parameters, wait) does this block's share of a step, and calls wait() once, before
// it reads or writes anything that others do.
template <class Run>
__device__ __forceinline__ void run(const PersistentParams& p, Shared& s, Run run_step) {
  const u32 begin = static_cast<int>(blockIdx.x) < p.n_attending ? kLent : 0;
  const Place first{begin, 0, begin};
  if (threadIdx.x == 0) {
    s.step = 0, s.next = first, s.under_way = s.under_way_then = kUnderWay;
    for (int i = 0; i < kStages; ++i) {
      barrier_init(&s.full[i], 1);
      barrier_init(&s.empty[i], kGroupWarps);
    }
    barrier_init_fence();
  }
  named_sync(2, kThreads);
  if (threadIdx.x >= kWorkers) {
    give_registers<kFeederRegisters>();
    if (threadIdx.x < kWorkers + 32) feed(p, s, first);
    return;
  }
  take_registers<kWorkerRegisters>();
  for (int i = 0; i + 1 < kRecords; ++i) load_record(p, i, s);
  while (true) {
    cp_async_wait<kRecords - 2>();
    sync_workers();  // the step before is done, and the record is there
    const int i = *const_cast<volatile int*>(&s.step);
    if (i == p.n_steps) break;
    const char* const record = s.records[i % kRecords];
    const PersistentStep step = *reinterpret_cast<const PersistentStep*>(record);
    note_time(p, i);
    if (threadIdx.x == 0) {
      if (step.waits) add_released(p.arrived);
      store_relaxed(&s.under_way, s.under_way_then);
    }
    const auto wait = [&] {
      load_record(p, i + kRecords - 1, s);
      if (step.waits && threadIdx.x == 0) {
        while (load_acquire(p.arrived) < step.waits * gridDim.x) {
        }
      }
      sync_workers();
      if (threadIdx.x == 0) s.step = i + 1;
    };
    run_step(step, record + sizeof(PersistentStep), wait);
  }
  note_time(p, p.n_steps);
  if (threadIdx.x == 0 && add_and_see(p.arrived) == (p.n_waits + 1) * gridDim.x - 1) *p.arrived = 0;
}

}  // namespace persistent
}  // namespace tegula::cuda
