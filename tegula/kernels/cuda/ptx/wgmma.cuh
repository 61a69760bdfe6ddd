// wgmma: D[64 x N] (+)= A[64 x 16] B[16 x N] by the four warps of a warpgroup, bf16 in, f32 out.
//
// Fragments, for lane l of warp w (0..3) of the warpgroup:
//   d[4i + 2r + c]  row 16w + l/4 + 8r, column 8i + 2(l%4) + c       (i < N/8, r < 2, c < 2)
//   a[2k + r]       row 16w + l/4 + 8r, columns 8k + 2(l%4) and +1   (k < 2)
// so two neighbouring 8-column blocks of D, packed to bf16, are the A of a following product: P of
// attention never leaves registers.
//
// The products run asynchronously. In order: wgmma_fence() once registers are as they should be
// read, products, wgmma_commit(), and wgmma_wait<n>() until all but the last n committed groups are
// done; registers of a product may not be touched in between. fence_registers() tells the compiler
// so: it makes it believe they change there.
#pragma once

#include "tegula/kernels/cuda/ptx/types.cuh"

namespace tegula::cuda {

// An operand in shared memory with the 128-byte swizzle (see tma.cuh): its address and two strides.
//  - K-major (rows of the operand's M or N index, 64 consecutive k each): `stride_bytes` between
//  groups
//    of 8 rows; the other is not used. Advance k by 16 elements: + 32 bytes.
//  - MN-major (rows of k, 64 consecutive n each): `stride_bytes` between groups of 8 k rows,
//    `leading_bytes` between blocks of 64 n. Advance k by 16 rows: + 2048 bytes.
struct SmemOperand {
  u64 bits;
  __device__ SmemOperand(u32 address, u32 leading_bytes, u32 stride_bytes)
      : bits(u64((address & 0x3FFFF) >> 4) | u64(leading_bytes >> 4) << 16 |
             u64(stride_bytes >> 4) << 32 | u64(1) << 62) {}
  __device__ u64 at(u32 offset_bytes) const { return bits + (offset_bytes >> 4); }
};

__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending>
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

template <int kCount>
__device__ inline void fence_registers(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// Wgmma<N>::ss: A and B from shared memory, each K-major or MN-major. accumulate = false overwrites
// D.
// Wgmma<N>::rs: A from registers, B from shared memory, MN-major or K-major.
template <int kN>
struct Wgmma;

// clang-format off
#define TEGULA_NAMES_0 "%0, %1, %2, %3"
#define TEGULA_NAMES_1 "%4, %5, %6, %7"
#define TEGULA_NAMES_2 "%8, %9, %10, %11"
#define TEGULA_NAMES_3 "%12, %13, %14, %15"
#define TEGULA_NAMES_4 "%16, %17, %18, %19"
#define TEGULA_NAMES_5 "%20, %21, %22, %23"
#define TEGULA_NAMES_6 "%24, %25, %26, %27"
#define TEGULA_NAMES_7 "%28, %29, %30, %31"
#define TEGULA_NAMES_8 "%32, %33, %34, %35"
#define TEGULA_NAMES_9 "%36, %37, %38, %39"
#define TEGULA_NAMES_10 "%40, %41, %42, %43"
#define TEGULA_NAMES_11 "%44, %45, %46, %47"
#define TEGULA_NAMES_12 "%48, %49, %50, %51"
#define TEGULA_NAMES_13 "%52, %53, %54, %55"
#define TEGULA_NAMES_14 "%56, %57, %58, %59"
#define TEGULA_NAMES_15 "%60, %61, %62, %63"
#define TEGULA_NAMES_16 "%64, %65, %66, %67"
#define TEGULA_NAMES_17 "%68, %69, %70, %71"
#define TEGULA_NAMES_18 "%72, %73, %74, %75"
#define TEGULA_NAMES_19 "%76, %77, %78, %79"
#define TEGULA_NAMES_20 "%80, %81, %82, %83"
#define TEGULA_NAMES_21 "%84, %85, %86, %87"
#define TEGULA_NAMES_22 "%88, %89, %90, %91"
#define TEGULA_NAMES_23 "%92, %93, %94, %95"
#define TEGULA_NAMES_24 "%96, %97, %98, %99"
#define TEGULA_NAMES_25 "%100, %101, %102, %103"
#define TEGULA_NAMES_26 "%104, %105, %106, %107"
#define TEGULA_NAMES_27 "%108, %109, %110, %111"
#define TEGULA_NAMES_28 "%112, %113, %114, %115"
#define TEGULA_NAMES_29 "%116, %117, %118, %119"
#define TEGULA_NAMES_30 "%120, %121, %122, %123"
#define TEGULA_NAMES_31 "%124, %125, %126, %127"
#define TEGULA_ACC_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define TEGULA_LIST(...) __VA_ARGS__
#define TEGULA_WGMMA(N, NAMES, ACC, P0, P1, P2, P3, P4, P5)                                         \
  template <>                                                                                       \
  struct Wgmma<N> {                                                                                 \
    template <bool kAMnMajor = false, bool kBMnMajor = kAMnMajor>                                  \
    static __device__ void ss(float (&d)[N / 2], u64 a, u64 b, bool accumulate) {                  \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " P2 ", 0;\n"                                 \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" NAMES "}, " P0 ", "  \
                   P1 ", p, 1, 1, " P3 ", " P4 ";\n}"                                              \
                   : ACC : "l"(a), "l"(b), "r"(int(accumulate)), "n"(int(kAMnMajor)),              \
                     "n"(int(kBMnMajor)));                                                         \
    }                                                                                              \
    template <bool kMnMajor>                                                                       \
    static __device__ void rs(float (&d)[N / 2], const u32* a, u64 b, bool accumulate) {           \
      if constexpr (kMnMajor)                                                                      \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " P5 ", 0;\n"                               \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" NAMES "}, {" P0  \
                     ", " P1 ", " P2 ", " P3 "}, " P4 ", p, 1, 1, 1;\n}"                           \
                     : ACC : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(accumulate)));\
      else                                                                                         \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " P5 ", 0;\n"                               \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" NAMES "}, {" P0  \
                     ", " P1 ", " P2 ", " P3 "}, " P4 ", p, 1, 1, 0;\n}"                           \
                     : ACC : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(accumulate)));\
    }                                                                                              \
  };
TEGULA_WGMMA(64,
    TEGULA_NAMES_0 ", " TEGULA_NAMES_1 ", " TEGULA_NAMES_2 ", " TEGULA_NAMES_3 ", "
    TEGULA_NAMES_4 ", " TEGULA_NAMES_5 ", " TEGULA_NAMES_6 ", " TEGULA_NAMES_7,
    TEGULA_LIST(TEGULA_ACC_4(0), TEGULA_ACC_4(4), TEGULA_ACC_4(8), TEGULA_ACC_4(12), TEGULA_ACC_4(16),
    TEGULA_ACC_4(20), TEGULA_ACC_4(24), TEGULA_ACC_4(28)),
    "%32", "%33", "%34", "%35", "%36", "%37")
TEGULA_WGMMA(80,
    TEGULA_NAMES_0 ", " TEGULA_NAMES_1 ", " TEGULA_NAMES_2 ", " TEGULA_NAMES_3 ", "
    TEGULA_NAMES_4 ", " TEGULA_NAMES_5 ", " TEGULA_NAMES_6 ", " TEGULA_NAMES_7 ", "
    TEGULA_NAMES_8 ", " TEGULA_NAMES_9,
    TEGULA_LIST(TEGULA_ACC_4(0), TEGULA_ACC_4(4), TEGULA_ACC_4(8), TEGULA_ACC_4(12), TEGULA_ACC_4(16),
    TEGULA_ACC_4(20), TEGULA_ACC_4(24), TEGULA_ACC_4(28), TEGULA_ACC_4(32), TEGULA_ACC_4(36)),
    "%40", "%41", "%42", "%43", "%44", "%45")
TEGULA_WGMMA(88,
    TEGULA_NAMES_0 ", " TEGULA_NAMES_1 ", " TEGULA_NAMES_2 ", " TEGULA_NAMES_3 ", "
    TEGULA_NAMES_4 ", " TEGULA_NAMES_5 ", " TEGULA_NAMES_6 ", " TEGULA_NAMES_7 ", "
    TEGULA_NAMES_8 ", " TEGULA_NAMES_9 ", " TEGULA_NAMES_10,
    TEGULA_LIST(TEGULA_ACC_4(0), TEGULA_ACC_4(4), TEGULA_ACC_4(8), TEGULA_ACC_4(12), TEGULA_ACC_4(16),
    TEGULA_ACC_4(20), TEGULA_ACC_4(24), TEGULA_ACC_4(28), TEGULA_ACC_4(32), TEGULA_ACC_4(36),
    TEGULA_ACC_4(40)),
    "%44", "%45", "%46", "%47", "%48", "%49")
TEGULA_WGMMA(96,
    TEGULA_NAMES_0 ", " TEGULA_NAMES_1 ", " TEGULA_NAMES_2 ", " TEGULA_NAMES_3 ", "
    TEGULA_NAMES_4 ", " TEGULA_NAMES_5 ", " TEGULA_NAMES_6 ", " TEGULA_NAMES_7 ", "
    TEGULA_NAMES_8 ", " TEGULA_NAMES_9 ", " TEGULA_NAMES_10 ", " TEGULA_NAMES_11,
    TEGULA_LIST(TEGULA_ACC_4(0), TEGULA_ACC_4(4), TEGULA_ACC_4(8), TEGULA_ACC_4(12), TEGULA_ACC_4(16),
    TEGULA_ACC_4(20), TEGULA_ACC_4(24), TEGULA_ACC_4(28), TEGULA_ACC_4(32), TEGULA_ACC_4(36),
    TEGULA_ACC_4(40), TEGULA_ACC_4(44)),
    "%48", "%49", "%50", "%51", "%52", "%53")
TEGULA_WGMMA(112,
    TEGULA_NAMES_0 ", " TEGULA_NAMES_1 ", " TEGULA_NAMES_2 ", " TEGULA_NAMES_3 ", "
    TEGULA_NAMES_4 ", " TEGULA_NAMES_5 ", " TEGULA_NAMES_6 ", " TEGULA_NAMES_7 ", "
    TEGULA_NAMES_8 ", " TEGULA_NAMES_9 ", " TEGULA_NAMES_10 ", " TEGULA_NAMES_11 ", "
    TEGULA_NAMES_12 ", " TEGULA_NAMES_13,
    TEGULA_LIST(TEGULA_ACC_4(0), TEGULA_ACC_4(4), TEGULA_ACC_4(8), TEGULA_ACC_4(12), TEGULA_ACC_4(16),
    TEGULA_ACC_4(20), TEGULA_ACC_4(24), TEGULA_ACC_4(28), TEGULA_ACC_4(32), TEGULA_ACC_4(36),
    TEGULA_ACC_4(40), TEGULA_ACC_4(44), TEGULA_ACC_4(48), TEGULA_ACC_4(52)),
    "%56", "%57", "%58", "%59", "%60", "%61")
TEGULA_WGMMA(128,
    TEGULA_NAMES_0 ", " TEGULA_NAMES_1 ", " TEGULA_NAMES_2 ", " TEGULA_NAMES_3 ", "
    TEGULA_NAMES_4 ", " TEGULA_NAMES_5 ", " TEGULA_NAMES_6 ", " TEGULA_NAMES_7 ", "
    TEGULA_NAMES_8 ", " TEGULA_NAMES_9 ", " TEGULA_NAMES_10 ", " TEGULA_NAMES_11 ", "
    TEGULA_NAMES_12 ", " TEGULA_NAMES_13 ", " TEGULA_NAMES_14 ", " TEGULA_NAMES_15,
    TEGULA_LIST(TEGULA_ACC_4(0), TEGULA_ACC_4(4), TEGULA_ACC_4(8), TEGULA_ACC_4(12), TEGULA_ACC_4(16),
    TEGULA_ACC_4(20), TEGULA_ACC_4(24), TEGULA_ACC_4(28), TEGULA_ACC_4(32), TEGULA_ACC_4(36),
    TEGULA_ACC_4(40), TEGULA_ACC_4(44), TEGULA_ACC_4(48), TEGULA_ACC_4(52), TEGULA_ACC_4(56),
    TEGULA_ACC_4(60)),
    "%64", "%65", "%66", "%67", "%68", "%69")
TEGULA_WGMMA(144,
    TEGULA_NAMES_0 ", " TEGULA_NAMES_1 ", " TEGULA_NAMES_2 ", " TEGULA_NAMES_3 ", "
    TEGULA_NAMES_4 ", " TEGULA_NAMES_5 ", " TEGULA_NAMES_6 ", " TEGULA_NAMES_7 ", "
    TEGULA_NAMES_8 ", " TEGULA_NAMES_9 ", " TEGULA_NAMES_10 ", " TEGULA_NAMES_11 ", "
    TEGULA_NAMES_12 ", " TEGULA_NAMES_13 ", " TEGULA_NAMES_14 ", " TEGULA_NAMES_15 ", "
    TEGULA_NAMES_16 ", " TEGULA_NAMES_17,
    TEGULA_LIST(TEGULA_ACC_4(0), TEGULA_ACC_4(4), TEGULA_ACC_4(8), TEGULA_ACC_4(12), TEGULA_ACC_4(16),
    TEGULA_ACC_4(20), TEGULA_ACC_4(24), TEGULA_ACC_4(28), TEGULA_ACC_4(32), TEGULA_ACC_4(36),
    TEGULA_ACC_4(40), TEGULA_ACC_4(44), TEGULA_ACC_4(48), TEGULA_ACC_4(52), TEGULA_ACC_4(56),
    TEGULA_ACC_4(60), TEGULA_ACC_4(64), TEGULA_ACC_4(68)),
    "%72", "%73", "%74", "%75", "%76", "%77")
TEGULA_WGMMA(160,
    TEGULA_NAMES_0 ", " TEGULA_NAMES_1 ", " TEGULA_NAMES_2 ", " TEGULA_NAMES_3 ", "
    TEGULA_NAMES_4 ", " TEGULA_NAMES_5 ", " TEGULA_NAMES_6 ", " TEGULA_NAMES_7 ", "
    TEGULA_NAMES_8 ", " TEGULA_NAMES_9 ", " TEGULA_NAMES_10 ", " TEGULA_NAMES_11 ", "
    TEGULA_NAMES_12 ", " TEGULA_NAMES_13 ", " TEGULA_NAMES_14 ", " TEGULA_NAMES_15 ", "
    TEGULA_NAMES_16 ", " TEGULA_NAMES_17 ", " TEGULA_NAMES_18 ", " TEGULA_NAMES_19,
    TEGULA_LIST(TEGULA_ACC_4(0), TEGULA_ACC_4(4), TEGULA_ACC_4(8), TEGULA_ACC_4(12), TEGULA_ACC_4(16),
    TEGULA_ACC_4(20), TEGULA_ACC_4(24), TEGULA_ACC_4(28), TEGULA_ACC_4(32), TEGULA_ACC_4(36),
    TEGULA_ACC_4(40), TEGULA_ACC_4(44), TEGULA_ACC_4(48), TEGULA_ACC_4(52), TEGULA_ACC_4(56),
    TEGULA_ACC_4(60), TEGULA_ACC_4(64), TEGULA_ACC_4(68), TEGULA_ACC_4(72), TEGULA_ACC_4(76)),
    "%80", "%81", "%82", "%83", "%84", "%85")
TEGULA_WGMMA(176,
    TEGULA_NAMES_0 ", " TEGULA_NAMES_1 ", " TEGULA_NAMES_2 ", " TEGULA_NAMES_3 ", "
    TEGULA_NAMES_4 ", " TEGULA_NAMES_5 ", " TEGULA_NAMES_6 ", " TEGULA_NAMES_7 ", "
    TEGULA_NAMES_8 ", " TEGULA_NAMES_9 ", " TEGULA_NAMES_10 ", " TEGULA_NAMES_11 ", "
    TEGULA_NAMES_12 ", " TEGULA_NAMES_13 ", " TEGULA_NAMES_14 ", " TEGULA_NAMES_15 ", "
    TEGULA_NAMES_16 ", " TEGULA_NAMES_17 ", " TEGULA_NAMES_18 ", " TEGULA_NAMES_19 ", "
    TEGULA_NAMES_20 ", " TEGULA_NAMES_21,
    TEGULA_LIST(TEGULA_ACC_4(0), TEGULA_ACC_4(4), TEGULA_ACC_4(8), TEGULA_ACC_4(12), TEGULA_ACC_4(16),
    TEGULA_ACC_4(20), TEGULA_ACC_4(24), TEGULA_ACC_4(28), TEGULA_ACC_4(32), TEGULA_ACC_4(36),
    TEGULA_ACC_4(40), TEGULA_ACC_4(44), TEGULA_ACC_4(48), TEGULA_ACC_4(52), TEGULA_ACC_4(56),
    TEGULA_ACC_4(60), TEGULA_ACC_4(64), TEGULA_ACC_4(68), TEGULA_ACC_4(72), TEGULA_ACC_4(76),
    TEGULA_ACC_4(80), TEGULA_ACC_4(84)),
    "%88", "%89", "%90", "%91", "%92", "%93")
TEGULA_WGMMA(192,
    TEGULA_NAMES_0 ", " TEGULA_NAMES_1 ", " TEGULA_NAMES_2 ", " TEGULA_NAMES_3 ", "
    TEGULA_NAMES_4 ", " TEGULA_NAMES_5 ", " TEGULA_NAMES_6 ", " TEGULA_NAMES_7 ", "
    TEGULA_NAMES_8 ", " TEGULA_NAMES_9 ", " TEGULA_NAMES_10 ", " TEGULA_NAMES_11 ", "
    TEGULA_NAMES_12 ", " TEGULA_NAMES_13 ", " TEGULA_NAMES_14 ", " TEGULA_NAMES_15 ", "
    TEGULA_NAMES_16 ", " TEGULA_NAMES_17 ", " TEGULA_NAMES_18 ", " TEGULA_NAMES_19 ", "
    TEGULA_NAMES_20 ", " TEGULA_NAMES_21 ", " TEGULA_NAMES_22 ", " TEGULA_NAMES_23,
    TEGULA_LIST(TEGULA_ACC_4(0), TEGULA_ACC_4(4), TEGULA_ACC_4(8), TEGULA_ACC_4(12), TEGULA_ACC_4(16),
    TEGULA_ACC_4(20), TEGULA_ACC_4(24), TEGULA_ACC_4(28), TEGULA_ACC_4(32), TEGULA_ACC_4(36),
    TEGULA_ACC_4(40), TEGULA_ACC_4(44), TEGULA_ACC_4(48), TEGULA_ACC_4(52), TEGULA_ACC_4(56),
    TEGULA_ACC_4(60), TEGULA_ACC_4(64), TEGULA_ACC_4(68), TEGULA_ACC_4(72), TEGULA_ACC_4(76),
    TEGULA_ACC_4(80), TEGULA_ACC_4(84), TEGULA_ACC_4(88), TEGULA_ACC_4(92)),
    "%96", "%97", "%98", "%99", "%100", "%101")
TEGULA_WGMMA(256,
    TEGULA_NAMES_0 ", " TEGULA_NAMES_1 ", " TEGULA_NAMES_2 ", " TEGULA_NAMES_3 ", "
    TEGULA_NAMES_4 ", " TEGULA_NAMES_5 ", " TEGULA_NAMES_6 ", " TEGULA_NAMES_7 ", "
    TEGULA_NAMES_8 ", " TEGULA_NAMES_9 ", " TEGULA_NAMES_10 ", " TEGULA_NAMES_11 ", "
    TEGULA_NAMES_12 ", " TEGULA_NAMES_13 ", " TEGULA_NAMES_14 ", " TEGULA_NAMES_15 ", "
    TEGULA_NAMES_16 ", " TEGULA_NAMES_17 ", " TEGULA_NAMES_18 ", " TEGULA_NAMES_19 ", "
    TEGULA_NAMES_20 ", " TEGULA_NAMES_21 ", " TEGULA_NAMES_22 ", " TEGULA_NAMES_23 ", "
    TEGULA_NAMES_24 ", " TEGULA_NAMES_25 ", " TEGULA_NAMES_26 ", " TEGULA_NAMES_27 ", "
    TEGULA_NAMES_28 ", " TEGULA_NAMES_29 ", " TEGULA_NAMES_30 ", " TEGULA_NAMES_31,
    TEGULA_LIST(TEGULA_ACC_4(0), TEGULA_ACC_4(4), TEGULA_ACC_4(8), TEGULA_ACC_4(12), TEGULA_ACC_4(16),
    TEGULA_ACC_4(20), TEGULA_ACC_4(24), TEGULA_ACC_4(28), TEGULA_ACC_4(32), TEGULA_ACC_4(36),
    TEGULA_ACC_4(40), TEGULA_ACC_4(44), TEGULA_ACC_4(48), TEGULA_ACC_4(52), TEGULA_ACC_4(56),
    TEGULA_ACC_4(60), TEGULA_ACC_4(64), TEGULA_ACC_4(68), TEGULA_ACC_4(72), TEGULA_ACC_4(76),
    TEGULA_ACC_4(80), TEGULA_ACC_4(84), TEGULA_ACC_4(88), TEGULA_ACC_4(92), TEGULA_ACC_4(96),
    TEGULA_ACC_4(100), TEGULA_ACC_4(104), TEGULA_ACC_4(108), TEGULA_ACC_4(112), TEGULA_ACC_4(116),
    TEGULA_ACC_4(120), TEGULA_ACC_4(124)),
    "%128", "%129", "%130", "%131", "%132", "%133")
#undef TEGULA_NAMES_0
#undef TEGULA_NAMES_1
#undef TEGULA_NAMES_2
#undef TEGULA_NAMES_3
#undef TEGULA_NAMES_4
#undef TEGULA_NAMES_5
#undef TEGULA_NAMES_6
#undef TEGULA_NAMES_7
#undef TEGULA_NAMES_8
#undef TEGULA_NAMES_9
#undef TEGULA_NAMES_10
#undef TEGULA_NAMES_11
#undef TEGULA_NAMES_12
#undef TEGULA_NAMES_13
#undef TEGULA_NAMES_14
#undef TEGULA_NAMES_15
#undef TEGULA_NAMES_16
#undef TEGULA_NAMES_17
#undef TEGULA_NAMES_18
#undef TEGULA_NAMES_19
#undef TEGULA_NAMES_20
#undef TEGULA_NAMES_21
#undef TEGULA_NAMES_22
#undef TEGULA_NAMES_23
#undef TEGULA_NAMES_24
#undef TEGULA_NAMES_25
#undef TEGULA_NAMES_26
#undef TEGULA_NAMES_27
#undef TEGULA_NAMES_28
#undef TEGULA_NAMES_29
#undef TEGULA_NAMES_30
#undef TEGULA_NAMES_31
#undef TEGULA_ACC_4
#undef TEGULA_LIST
#undef TEGULA_WGMMA
// clang-format on

}  // namespace tegula::cuda
