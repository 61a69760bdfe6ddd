// How fast each instruction set of this machine multiplies and adds: the widest is not always the
// fastest (wide units may be few, or lower the clock).
#pragma once

#include "tegula/kernels/kernel.h"

namespace tegula::kernel {

// f32 FLOP/s of one thread with the functions of that set; 0 where the machine lacks it. Takes
// about 2 ms: the best of some bursts, after one that brings the clock where the set wants it.
double isa_flops_per_s(Isa isa);
// The same of products of bf16 that AVX-512 sums in pairs.
double pair_flops_per_s();

// The set that machine_isa() is to be, of those up to `widest`: the widest, but a narrower one that
// `rate` says to be faster by more than kIsaMargin, lest noise decide. What is narrower than AVX2
// is not asked: nothing beats it; nor is AMX, for its tiles. Up to AVX-512 sets differ in speed
// only.
inline constexpr double kIsaMargin = 1.15;
Isa fastest_isa(Isa widest, double (*rate)(Isa) = isa_flops_per_s);

}  // namespace tegula::kernel
