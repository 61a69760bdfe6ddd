// Products of bf16, two neighbouring k at a time, where a processor sums them faster than it widens
// them. A pair lies in a float's place: the first k in its upper half, which VDPBF16PS adds first,
//   acc = fma(a_1, b_1, acc) of the upper halves, then acc = fma(a_0, b_0, acc) of the lower ones,
// each rounded, subnormals 0 (Intel's manual; Zen 4 does the same): the chain of order "fma_chain".
#pragma once

#include "tegula/kernels/cpu/isa/vec.h"

namespace tegula::kernel::TEGULA_ISA_NS {

#if defined(TEGULA_ISA_AVX512)
inline constexpr bool kHasPairs = true;
// As text, because this source is compiled for processors that lack it, too.
TEGULA_VEC Vf dot_pairs(Vf acc, Vf a, Vf b) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(acc.v) : "v"(a.v), "v"(b.v));
  return acc;
}
TEGULA_VEC Vf swap_halves(Vf pairs) { return as_float({_mm512_rol_epi32(bits(pairs).v, 16)}); }
TEGULA_VEC Vf upper_halves(Vf pairs) { return as_float({_mm512_srli_epi32(bits(pairs).v, 16)}); }
#else
inline constexpr bool kHasPairs = false;
TEGULA_VEC Vf dot_pairs(Vf acc, Vf, Vf) { return acc; }
TEGULA_VEC Vf swap_halves(Vf pairs) { return pairs; }
TEGULA_VEC Vf upper_halves(Vf pairs) { return pairs; }
#endif

}  // namespace tegula::kernel::TEGULA_ISA_NS
