#include "tegula/kernels/cpu/isa/fma_burst.h"

#include "tegula/kernels/cpu/isa/pairs.h"

namespace tegula::kernel::TEGULA_ISA_NS {

// Twelve independent chains cover the latency of two multiply-add units. Unrolled, or the
// accumulators would live in memory and the rate would come out at a third.
template <bool kPairs>
static void burst(const FmaBurst& b) {
  constexpr int kChains = 12;
  Vf acc[kChains];
  for (Vf& a : acc) a = set1(1.0f);
  const Vf x = set1(0.999f), y = set1(0.001f);
  for (int64_t i = 0; i < b.rounds; ++i) {
#pragma GCC unroll unrolled(12)
    for (Vf& a : acc) a = kPairs ? dot_pairs(a, x, y) : fma(a, x, y);
  }
  volatile float sink;
  float out[kLanes];
  for (const Vf& a : acc) {
    store(out, a);
    sink = out[0];
  }
  (void)sink;
  *b.flops += b.rounds * kChains * kLanes * (kPairs ? 4 : 2);
}
void fma_burst(const FmaBurst& b) { b.is_of_pairs ? burst<true>(b) : burst<false>(b); }

}  // namespace tegula::kernel::TEGULA_ISA_NS
