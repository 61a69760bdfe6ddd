#include "tegula/cost/sustained.h"

#include <cmath>

#include "tegula/base/algorithm.h"

namespace tegula {

namespace {

// On Hopper and later: of 989 TFLOP/s. FlashAttention 1 and 2 do not use wgmma.
constexpr AttentionCurves kHopperCudnn = {{{.43, 350}, {.41, 650}}, {{.67, 770}, {.58, 900}}};
constexpr AttentionCurves kHopperFlash2 = {{{.30, 1150}, {.30, 2000}}, {{.31, 1150}, {.32, 2200}}};
constexpr AttentionCurves kHopperFlash1 = {{{.16, 1000}, {.13, 1500}}, {{.12, 1000}, {.11, 1500}}};
// On A100, of 312 TFLOP/s, causal: figures 4 to 6 of the FlashAttention 2 paper.
constexpr AttentionCurves kAmpereFlash2 = {{{.60, 800}, {.52, 1300}}, {{.65, 900}, {.56, 1300}}};
constexpr AttentionCurves kAmpereFlash1 = {{{.33, 700}, {.28, 1000}}, {{.25, 700}, {.22, 1000}}};

constexpr int kAmpere = 80, kHopper = 90;  // compute capabilities

constexpr double kFullLoad = .8;  // of the peak: no kernel keeps more of it busy for long

}  // namespace

double product_share(const Accelerator& a, double k) {
  return a.sustained.product * k / (k + a.sustained.k_half);
}

void set_attention(int capability, Sustained& s) {
  using enum AttentionKernel;
  const auto set = [&](AttentionKernel kernel, const AttentionCurves& curves) {
    s.attention[static_cast<size_t>(kernel)] = curves;
    s.attention[static_cast<size_t>(kernel)].is_known = true;
  };
  const bool is_ampere = capability == kAmpere;
  if (!is_ampere && capability < kHopper) return;
  set(kFlash1, is_ampere ? kAmpereFlash1 : kHopperFlash1);
  set(kFlash2, is_ampere ? kAmpereFlash2 : kHopperFlash2);
  if (is_ampere) return;
  for (const AttentionKernel last : {kFlash3, kCudnn}) set(last, kHopperCudnn);
}

double attention_share(const Accelerator& a, AttentionKernel kernel, double seqlen, double head_dim,
                       bool is_backward) {
  auto k = static_cast<size_t>(kernel);
  if (k == 0) k = kAttentionKernels - 1;
  while (kernel == AttentionKernel::kDefault && k > 0 && !a.sustained.attention[k].is_known) --k;
  AttentionCurves curves = a.sustained.attention[k];
  return curves.of(head_dim)[is_backward].at(seqlen);
}

double memory_rate(const Accelerator& a, const Efficiency& e) {
  return a.memory_bytes_per_s * (a.sustained.memory * e.memory);
}

double clock_share(const Accelerator& a, double busy) {
  return 1 - (1 - a.sustained.clock) * std::pow(std::min(1.0, busy / kFullLoad), 1.5);
}

double large_product_share(const Accelerator& a) { return a.sustained.product * clock_share(a, 1); }

}  // namespace tegula
