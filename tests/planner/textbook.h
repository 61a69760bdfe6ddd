// The textbook's formulas, written down apart from the planner: plain numbers in, plain numbers
// out, nothing of tegula/planner included.
#pragma once

#include <cmath>

namespace textbook {

// Kaplan et al. 2020, section 2.1.
inline double train_flops_6n(double n, double tokens) { return 6 * n * tokens; }
// One matrix of a feed-forward layer: z[B N] = x[B H] W[H N].
inline double mlp_forward(double b, double n, double h) { return 2 * b * n * h; }
inline double mlp_backward(double b, double n, double h) { return 4 * b * n * h; }

// Korthikanti et al. 2022, equations 1 to 4, bytes of one layer.
inline double activations(double s, double b, double h, double a) {
  return s * b * h * (34 + 5 * a * s / h);
}
inline double activations_tp(double s, double b, double h, double a, double t) {
  return s * b * h * (10 + 24 / t + 5 * a * s / (h * t));
}
inline double activations_tp_sp(double s, double b, double h, double a, double t) {
  return s * b * h / t * (34 + 5 * a * s / h);
}
inline double activations_selective(double s, double b, double h, double t) {
  return 34 * s * b * h / t;
}
inline double activations_full(double s, double b, double h) { return 2 * s * b * h; }

// Rajbhandari et al. 2020, figure 1: bytes of state of psi parameters on each of n ranks.
inline double zero_bytes(int stage, double psi, double n) {
  switch (stage) {
    case 0:
      return 16 * psi;
    case 1:
      return 4 * psi + 12 * psi / n;
    case 2:
      return 2 * psi + 14 * psi / n;
    default:
      return 16 * psi / n;
  }
}
// Section 7: traffic in all-reduces of the gradients.
inline double zero_traffic(int stage) { return stage == 3 ? 1.5 : 1; }

// Narayanan et al. 2021, equation 3: FLOPs of a step with full recomputation.
inline double megatron_step_flops(double b, double s, double l, double h, double v) {
  return 96 * b * s * l * h * h * (1 + s / (6 * h) + v / (16 * l * h));
}
// Korthikanti et al. 2022, equation 8 (model FLOPs).
inline double korthikanti_model_flops(double b, double s, double l, double h, double v) {
  return 72 * b * l * s * h * h * (1 + s / (6 * h) + v / (12 * h * l));
}

inline double kv_cache_elements(double b, double n, double d, double heads) {
  return 2 * b * n * d * heads;
}

inline double bubble_of_total(double d, double n) { return (d - 1) / (d - 1 + n); }
inline double bubble_of_ideal(double p, double m) { return (p - 1) / m; }
inline double bubble_of_ideal_interleaved(double p, double m, double v) {
  return (p - 1) / (v * m);
}

// Operations a byte of [m k]·[k n] with elements of two bytes.
inline double matmul_intensity(double m, double n, double k) {
  return 2 * m * n * k / (2 * (k * m + n * k + m * n));
}

}  // namespace textbook
