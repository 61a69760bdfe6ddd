// Words shared by device code. Kernels are compiled without any host header, so that a variant
// takes a second or two; these names stand for what <cstdint> would give.
#pragma once

// Whether the 16-bit elements of a variant are f16, not bf16.
#ifndef TEGULA_F16
#define TEGULA_F16 0
#endif
// Whether what the tensor cores multiply is e4m3 (then TEGULA_F16 says what the results are).
#ifndef TEGULA_F8
#define TEGULA_F8 0
#endif
// Whether the tensors are f32, of which the tensor cores get parts in bf16.
#ifndef TEGULA_F32
#define TEGULA_F32 0
#endif

namespace tegula::cuda {

constexpr bool kIsF8 = TEGULA_F8;
constexpr bool kIsF32 = TEGULA_F32;

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

// How the L2 should deal with the lines read: encoded policies, as createpolicy would make them.
constexpr u64 kEvictNormal = 0x1000000000000000;
constexpr u64 kEvictFirst = 0x12F0000000000000;
constexpr u64 kEvictLast = 0x14F0000000000000;

// Filled in by the driver's cuTensorMapEncodeTiled: opaque, and passed as a __grid_constant__.
struct alignas(64) TensorMap {
  u64 words[16];
};

// The 32-bit address of something in shared memory, as the asynchronous instructions want it.
__device__ inline u32 smem_address(const void* p) {
  return static_cast<u32>(__cvta_generic_to_shared(p));
}

// Two floats as two bf16, `low` in the low half: the order of neighbouring columns.
__device__ inline u32 pack_bf16(float low, float high) {
  u32 packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

__device__ inline float bf16_to_float(u16 bits) { return __uint_as_float(u32(bits) << 16); }

// The same for the elements of this variant.
__device__ inline u32 pack_element(float low, float high) {
#if TEGULA_F16
  u32 packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
#else
  return pack_bf16(low, high);
#endif
}

__device__ inline float element_to_float(u16 bits) {
#if TEGULA_F16
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
#else
  return bf16_to_float(bits);
#endif
}

// Four floats as e4m3, the first in the lowest byte; past 448 they saturate.
__device__ inline u32 pack_e4m3(float a, float b, float c, float d) {
  u32 packed;
  asm("{\n.reg .b16 low, high;\n"
      "cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\n"
      "cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\n"
      "mov.b32 %0, {low, high};\n}"
      : "=r"(packed)
      : "f"(a), "f"(b), "f"(c), "f"(d));
  return packed;
}

__device__ inline float element_to_float(u8 bits) {  // of e4m3
  float x;
  asm("{\n.reg .b32 both;\n.reg .b16 low, high;\n"
      "cvt.rn.f16x2.e4m3x2 both, %1;\n"
      "mov.b32 {low, high}, both;\n"
      "cvt.f32.f16 %0, low;\n}"
      : "=f"(x)
      : "h"(u16(bits)));
  return x;
}

// The elements of the tensors: of results, and of what is read.
#if TEGULA_F32
using Element = float;
__device__ inline float element_to_float(float x) { return x; }
__device__ inline float round_to_element(float x) { return x; }
#else
using Element = u16;
__device__ inline u16 round_to_element(float x) { return u16(pack_element(x, 0.f)); }
#endif
#if TEGULA_F8
using InElement = u8;
#else
using InElement = Element;
#endif

// zero + 0 · x of two elements: still 0 (of either sign) if both are finite, else NaN.
__device__ inline u32 times_zero_plus(u32 x, u32 zero) {
#if TEGULA_F16
  asm("fma.rn.f16x2 %0, %1, %2, %0;" : "+r"(zero) : "r"(x), "r"(0));
#else
  asm("fma.rn.bf16x2 %0, %1, %2, %0;" : "+r"(zero) : "r"(x), "r"(0));
#endif
  return zero;
}

// 2^x by the special function unit: 2 ulp; -inf gives 0, denormal results are flushed.
__device__ inline float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Adds four floats in a row, aligned to 16 bytes, to global memory; in no particular order.
__device__ inline void global_add(float* to, float a, float b, float c, float d) {
#if __CUDA_ARCH__ >= 900
  asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(a), "f"(b), "f"(c),
               "f"(d)
               : "memory");
#else
  atomicAdd(to, a), atomicAdd(to + 1, b), atomicAdd(to + 2, c), atomicAdd(to + 3, d);
#endif
}

constexpr float kNegativeInfinity = __builtin_bit_cast(float, 0xFF800000u);

}  // namespace tegula::cuda
