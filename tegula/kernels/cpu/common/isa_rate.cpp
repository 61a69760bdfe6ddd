#include "tegula/kernels/cpu/common/isa_rate.h"

#include <chrono>

#include "tegula/base/algorithm.h"
#include "tegula/kernels/cpu/isa/fma_burst.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel {

namespace {
double burst_flops_per_s(Isa isa, bool of_pairs) {
  const IsaTable* table = isa_table_of(isa);
  if (table == nullptr) return 0;
  using Clock = std::chrono::steady_clock;
  constexpr int64_t kFirst = 60000;  // about 0.2 ms of vector code
  double best = 0;
  for (int burst = 0; burst < 8; ++burst) {
    int64_t flops = 0;
    const auto start = Clock::now();
    // Without vectors a burst of that length takes ages.
    table->fma_burst({isa == Isa::kPortable ? kFirst / 60 : kFirst, &flops, of_pairs});
    const double s = std::chrono::duration<double>(Clock::now() - start).count();
    if (burst > 0) best = std::max(best, static_cast<double>(flops) / s);
  }
  return best;
}
}  // namespace

double isa_flops_per_s(Isa isa) { return burst_flops_per_s(isa, false); }
double pair_flops_per_s() { return burst_flops_per_s(Isa::kAvx512, true); }

Isa fastest_isa(Isa widest, double (*rate)(Isa)) {
  Isa choice = widest;
  // AMX's vector functions are AVX-512's, and its tiles are beyond all vectors.
  if (widest <= Isa::kAvx2 || widest == Isa::kAmx) return choice;
  double best = rate(widest);
  for (int i = static_cast<int>(widest) - 1; i >= static_cast<int>(Isa::kAvx2); --i) {
    const Isa narrower = static_cast<Isa>(i);
    const double r = rate(narrower);
    if (r > kIsaMargin * best) choice = narrower, best = r;
  }
  return choice;
}

}  // namespace tegula::kernel
