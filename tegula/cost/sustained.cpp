#include "tegula/cost/sustained.h"

#include <cmath>

#include "tegula/base/algorithm.h"

namespace tegula {

namespace {

// most · s / (s + half) of the device's peak.
struct Curve {
  double most, half;
  double at(double seqlen) const { return most * seqlen / (seqlen + half); }
};

// Forward and backward, of heads up to 64 elements and of wider ones.
struct Curves {
  Curve forward_64, backward_64, forward_128, backward_128;
  double at(double seqlen, double head_dim, bool is_backward) const {
    const bool is_wide = head_dim > 96;
    return (is_wide       ? is_backward ? backward_128 : forward_128
            : is_backward ? backward_64
                          : forward_64)
        .at(seqlen);
  }
};

// On Hopper and later: of 989 TFLOP/s. FlashAttention 1 and 2 do not use wgmma.
constexpr Curves kHopperCudnn = {{.43, 350}, {.41, 650}, {.67, 770}, {.58, 900}};
constexpr Curves kHopperFlash2 = {{.30, 1150}, {.30, 2000}, {.31, 1150}, {.32, 2200}};
constexpr Curves kHopperFlash1 = {{.16, 1000}, {.13, 1500}, {.12, 1000}, {.11, 1500}};
// On A100, of 312 TFLOP/s, causal: figures 4 to 6 of the FlashAttention 2 paper.
constexpr Curves kAmpereFlash2 = {{.60, 800}, {.52, 1300}, {.65, 900}, {.56, 1300}};
constexpr Curves kAmpereFlash1 = {{.33, 700}, {.28, 1000}, {.25, 700}, {.22, 1000}};
// Where nothing is known: what the first release of the planner took.
constexpr Curves kUnknown = {{.66, 0}, {.54, 0}, {.66, 0}, {.54, 0}};

constexpr int kAmpere = 80, kHopper = 90;  // compute capabilities

const Curves& curves_of(const Accelerator& a, AttentionKernel kernel) {
  const bool is_old = kernel == AttentionKernel::kFlash1;
  if (a.capability == kAmpere) return is_old ? kAmpereFlash1 : kAmpereFlash2;
  if (a.capability < kHopper) return kUnknown;
  return is_old ? kHopperFlash1 : kernel == AttentionKernel::kFlash2 ? kHopperFlash2 : kHopperCudnn;
}

constexpr double kFullLoad = .8;  // of the peak: no kernel keeps more of it busy for long

}  // namespace

std::string_view kernel_name(AttentionKernel kernel) {
  constexpr std::string_view kNames[] = {"flash", "flash1", "flash2", "flash3", "cudnn"};
  return kNames[static_cast<int>(kernel)];
}

double product_share(const Accelerator& a, double k) {
  return a.sustained.product * k / (k + a.sustained.k_half);
}

double attention_share(const Accelerator& a, AttentionKernel kernel, double seqlen, double head_dim,
                       bool is_backward) {
  return curves_of(a, kernel).at(seqlen, head_dim, is_backward);
}

double clock_share(const Accelerator& a, double busy) {
  return 1 - (1 - a.sustained.clock) * std::pow(std::min(1.0, busy / kFullLoad), 1.5);
}

double large_product_share(const Accelerator& a) { return a.sustained.product * clock_share(a, 1); }

}  // namespace tegula
