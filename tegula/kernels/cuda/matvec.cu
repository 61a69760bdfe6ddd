// Few rows times a matrix: what decoding is made of. Bound by reading b once, 16 bytes a load. Rows
// of b are not asked into the L2 while the grid before runs: with that, the products of Llama-2-7B
// took a fifth longer on an H100 (2.03 in place of 2.50 TB/s). Loads of b stay out of the L1, which
// saves 4 % there. They may, since b is constant while a grid runs: c is apart from it, so are the
// results of calls joined to this one, and the next grid waits for this one before it writes.
//
//   c[m, n] = a[m, k] b[k, n], f32 sums rounded once
//
// Three ways: b as [k, n] (matvec_columns.cuh), as [n, k] of 16 bits (matvec_mma.cuh) and of f32
// (matvec_lanes.cuh). The order of none depends on m or on how many rows and columns go together: a
// row has the bits that it has alone. With shards every shard of k is such a sum, and a tree of
// neighbours joins them: the bits of the shards' products, added.
//
// Variant, by -D: TEGULA_M rows of a at a time, up to 16; TEGULA_SHARDS 1 | 2 | 4 | 8;
// TEGULA_B_MN_MAJOR 0, or 1 with up to 10 rows; TEGULA_COLUMNS of a block; TEGULA_IN16,
// TEGULA_OUT16 0: f32, 1: bf16, or f16 with TEGULA_F16. TEGULA_AFTER: behind a tile program.
// TEGULA_CALLS: as many calls end with one (tile_end_text.h), b as [n, k] of 16 bits.
#if TEGULA_B_MN_MAJOR
#include "tegula/kernels/cuda/matvec_columns.cuh"
#elif TEGULA_IN16
#include "tegula/kernels/cuda/matvec_mma.cuh"
#else
#include "tegula/kernels/cuda/matvec_lanes.cuh"
#endif

using namespace tegula::cuda;

// a() gives a, which may be used once the grid before has ended; b may be read before that where
// nothing writes it.
template <class A>
__device__ __forceinline__ void begin(const MatvecParams& p, int block, A a) {
  if (!p.is_settled) begin_early();
  run(p, block, [&] {
    if (p.is_settled) begin_early();
    return a();
  });
}

#ifdef TEGULA_AFTER
__device__ __forceinline__ const In* rows_of(const tile::Prologue& first) {
  __shared__ float4 results[tile::kResults];
  return static_cast<const In*>(tile::prologue(first, results));
}
#endif

#ifdef TEGULA_CALLS
// All blocks' parts go through a program of elements, which saves its launch.
struct Ended {
#ifdef TEGULA_AFTER
  tile::Prologue first;
#endif
  MatvecParams calls[kCalls];
  end::End last;
};

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    matvecs_ended(const __grid_constant__ Ended p) {
  const MatvecParams& one = p.calls[0];
  if (!one.is_settled) begin_early();
  const auto a = [&] {
    if (one.is_settled) begin_early();
#ifdef TEGULA_AFTER
    return rows_of(p.first);
#else
    return static_cast<const In*>(one.a);
#endif
  };
  run(p.calls, static_cast<int>(blockIdx.x), a, [&](int m, int n, const Out* given) {
    end::element(p.last, static_cast<end::Index>(m * one.n + n), given);
  });
}
#elif defined(TEGULA_AFTER)
// a is what a tile program makes, whose text this file is included behind: it runs in every block,
// since that takes less time than a launch of its own (tile_prologue_text.h). Without the least
// number of blocks the compiler would rather spill than have fewer of them.
struct After {
  tile::Prologue first;
  Joined<MatvecParams, kMostMatvecsAfter> calls;
};

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    matvecs_after(const __grid_constant__ After p) {
  const JoinedBlock at = joined_block(p.calls);
  begin(p.calls.of[at.call], static_cast<int>(at.block), [&] { return rows_of(p.first); });
}
#else
// a is found before the grid before has ended, too.
__device__ __forceinline__ void begin(const MatvecParams& p, int block) {
  const In* const a = static_cast<const In*>(p.a);
  begin(p, block, [a] { return a; });
}

extern "C" __global__ void __launch_bounds__(kThreads)
    matvec(const __grid_constant__ MatvecParams p) {
  begin(p, static_cast<int>(blockIdx.x));
}

extern "C" __global__ void __launch_bounds__(kThreads)
    matvecs(const __grid_constant__ Joined<MatvecParams> p) {
  const JoinedBlock at = joined_block(p);
  begin(p.of[at.call], static_cast<int>(at.block));
}
#endif
