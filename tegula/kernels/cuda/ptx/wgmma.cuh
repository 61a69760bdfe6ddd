// wgmma: D[64 x N] (+)= A[64 x 16] B[16 x N] by the four warps of a warpgroup, bf16 (or f16, by
// TEGULA_F16) in, f32 out. By TEGULA_F8: A[64 x 32] B[32 x N] of e4m3, K-major only; "two
// neighbouring" elements below are four then, so that the bytes of A and of operands in memory lie
// alike.
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
// The registers of D as the instruction names them, and as the compiler is told of them: each width
// those of the one before and some more.
#define TEGULA_NAMES_32 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define TEGULA_NAMES_64 TEGULA_NAMES_32 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, " \
  "%26, %27, %28, %29, %30, %31"
#define TEGULA_NAMES_80 TEGULA_NAMES_64 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define TEGULA_NAMES_88 TEGULA_NAMES_80 ", %40, %41, %42, %43"
#define TEGULA_NAMES_96 TEGULA_NAMES_88 ", %44, %45, %46, %47"
#define TEGULA_NAMES_112 TEGULA_NAMES_96 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define TEGULA_NAMES_128 TEGULA_NAMES_112 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define TEGULA_NAMES_144 TEGULA_NAMES_128 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define TEGULA_NAMES_160 TEGULA_NAMES_144 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define TEGULA_NAMES_176 TEGULA_NAMES_160 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define TEGULA_NAMES_192 TEGULA_NAMES_176 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define TEGULA_NAMES_256 TEGULA_NAMES_192 ", %96, %97, %98, %99, %100, %101, %102, %103, %104, " \
  "%105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, " \
  "%120, %121, %122, %123, %124, %125, %126, %127"
#define TEGULA_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define TEGULA_16(i) TEGULA_4(i), TEGULA_4(i + 4), TEGULA_4(i + 8), TEGULA_4(i + 12)
#define TEGULA_SUMS_32 TEGULA_16(0)
#define TEGULA_SUMS_64 TEGULA_SUMS_32, TEGULA_16(16)
#define TEGULA_SUMS_80 TEGULA_SUMS_64, TEGULA_4(32), TEGULA_4(36)
#define TEGULA_SUMS_88 TEGULA_SUMS_80, TEGULA_4(40)
#define TEGULA_SUMS_96 TEGULA_SUMS_88, TEGULA_4(44)
#define TEGULA_SUMS_112 TEGULA_SUMS_96, TEGULA_4(48), TEGULA_4(52)
#define TEGULA_SUMS_128 TEGULA_SUMS_112, TEGULA_4(56), TEGULA_4(60)
#define TEGULA_SUMS_144 TEGULA_SUMS_128, TEGULA_4(64), TEGULA_4(68)
#define TEGULA_SUMS_160 TEGULA_SUMS_144, TEGULA_4(72), TEGULA_4(76)
#define TEGULA_SUMS_176 TEGULA_SUMS_160, TEGULA_4(80), TEGULA_4(84)
#define TEGULA_SUMS_192 TEGULA_SUMS_176, TEGULA_4(88), TEGULA_4(92)
#define TEGULA_SUMS_256 TEGULA_SUMS_192, TEGULA_16(96), TEGULA_16(112)
#if TEGULA_F8
#define TEGULA_OPERANDS "k32.f32.e4m3.e4m3"
#define TEGULA_MAJOR(...)
#elif TEGULA_F16
#define TEGULA_OPERANDS "k16.f32.f16.f16"
#define TEGULA_MAJOR(...) __VA_ARGS__
#else
#define TEGULA_OPERANDS "k16.f32.bf16.bf16"
#define TEGULA_MAJOR(...) __VA_ARGS__
#endif
#define TEGULA_WGMMA(N, P0, P1, P2, P3, P4, P5, P6)                                                \
  template <>                                                                                      \
  struct Wgmma<N> {                                                                                \
    template <bool kAMnMajor = false, bool kBMnMajor = kAMnMajor>                                  \
    static __device__ void ss(float (&d)[N / 2], u64 a, u64 b, bool accumulate) {                  \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " P2 ", 0;\n"                                 \
                   "wgmma.mma_async.sync.aligned.m64n" #N TEGULA_OPERANDS " {"                     \
                   TEGULA_NAMES_##N "}, " P0 ", " P1 ", p, 1, 1"                                   \
                   TEGULA_MAJOR(", " P3 ", " P4) ";\n}"                                            \
                   : TEGULA_SUMS_##N                                                               \
                   : "l"(a), "l"(b), "r"(int(accumulate)), "n"(int(kAMnMajor)),                    \
                     "n"(int(kBMnMajor)));                                                         \
    }                                                                                              \
    template <bool kMnMajor>                                                                       \
    static __device__ void rs(float (&d)[N / 2], const u32* a, u64 b, bool accumulate) {           \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " P5 ", 0;\n"                                 \
                   "wgmma.mma_async.sync.aligned.m64n" #N TEGULA_OPERANDS " {"                     \
                   TEGULA_NAMES_##N "}, {" P0 ", " P1 ", " P2 ", " P3 "}, " P4                     \
                   ", p, 1, 1" TEGULA_MAJOR(", " P6) ";\n}"                                        \
                   : TEGULA_SUMS_##N                                                               \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(accumulate)),     \
                     "n"(int(kMnMajor)));                                                          \
    }                                                                                              \
  };
TEGULA_WGMMA(32, "%16", "%17", "%18", "%19", "%20", "%21", "%22")
TEGULA_WGMMA(64, "%32", "%33", "%34", "%35", "%36", "%37", "%38")
TEGULA_WGMMA(80, "%40", "%41", "%42", "%43", "%44", "%45", "%46")
TEGULA_WGMMA(88, "%44", "%45", "%46", "%47", "%48", "%49", "%50")
TEGULA_WGMMA(96, "%48", "%49", "%50", "%51", "%52", "%53", "%54")
TEGULA_WGMMA(112, "%56", "%57", "%58", "%59", "%60", "%61", "%62")
TEGULA_WGMMA(128, "%64", "%65", "%66", "%67", "%68", "%69", "%70")
TEGULA_WGMMA(144, "%72", "%73", "%74", "%75", "%76", "%77", "%78")
TEGULA_WGMMA(160, "%80", "%81", "%82", "%83", "%84", "%85", "%86")
TEGULA_WGMMA(176, "%88", "%89", "%90", "%91", "%92", "%93", "%94")
TEGULA_WGMMA(192, "%96", "%97", "%98", "%99", "%100", "%101", "%102")
TEGULA_WGMMA(256, "%128", "%129", "%130", "%131", "%132", "%133", "%134")
#undef TEGULA_WGMMA
// clang-format on

}  // namespace tegula::cuda
