// Passed to a persistent kernel (persistent.cuh): read by host and device code alike, so plain
// types only.
#pragma once

namespace tegula::cuda {

// Threads of a block that compute, and those beside them, of whose warps the first feeds: a whole
// warpgroup, which hands over its registers.
inline constexpr int kWorkers = 512, kFeeders = 128;
// A product's b is [n, k]: a stage of the ring has so many of its columns, and of each so many
// elements at most, which lie so far apart that those of eight columns are on all banks.
inline constexpr int kUnitColumns = 8, kStageK = 1024, kStageColumnBytes = 2 * kStageK + 16;
inline constexpr int kStageBytes = kUnitColumns * kStageColumnBytes;
inline constexpr int kPartK = 64;  // that a warp multiplies at a time
inline constexpr int kStageParts = kStageK / kPartK;

inline constexpr int kPersistentRecords = 4;  // of steps in shared memory: three are under way

// c[m, n] = a[m, k] b[k, n] of one call, or of 2 or 4 that differ by b and c alone and share a
// unit's columns: b[i] and c[i] are those of columns 2 i and 2 i + 1. Units go round the grid's
// blocks, from block `first` on: n_whole times, and n_left blocks have one more.
struct PersistentProduct {
  const void* b[kUnitColumns / 2];
  void* c[kUnitColumns / 2];
  long long ldb, ldc;  // strides between rows as they lie, in elements
  int n, k, n_calls, first, n_whole, n_left;
};

// The head of a step's record; what its function is passed follows. Tasks are warps' for programs
// of elements and what is put, blocks' for attention; they go round the grid's blocks, from block
// `first` on. n_owners > 0: each of that many blocks, which have the tasks of the step behind, does
// all of this one's for itself, so that none waits for another: they write the same. Products have
// their parts in shared memory from byte parts_at of the step's on, those of at_once of a block's
// units together.
struct PersistentStep {
  int function;  // of the text
  int waits;     // n: until all blocks have come to their n-th wait; 0: it does not wait
  int first, n_tasks, n_owners;
  int parts_at, at_once;
  int unused;
};

// Calls of one program or kernel that need not wait for each other: the first task of each.
inline constexpr int kMostPersistentCalls = 8;
struct PersistentCalls {
  int first[kMostPersistentCalls];  // of those that are none, past the last
};

struct PersistentParams {
  const char* steps;                  // n_steps records of TEGULA_RECORD_BYTES
  const PersistentProduct* products;  // of all steps, in their order
  unsigned* arrived;                  // 0 before and after
  long long* clocks;  // of block 0, as each step began and the last one ended: n_steps + 1
  int n_steps, n_products, n_waits;
  int n_attending;  // the first blocks, which have attention's tasks
};

}  // namespace tegula::cuda
