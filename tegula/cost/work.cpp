#include "tegula/cost/work.h"

#include <cmath>

#include "tegula/base/algorithm.h"

namespace tegula {

namespace {

constexpr double kTile = 128, kFewRows = 256;
// Products of f32 without tensor cores, of that peak: what heads of 128 elements take longer than
// those of 64 in the math backend's attention on an H200
// (bench/results/layouts/calls_h200_torch.json).
constexpr double kF32Share = 0.76;

// Tiles over the places of all their waves.
double wave_share(const Work& w, const Accelerator& a) {
  if (a.multiprocessors == 0 || w.m <= 0 || w.n <= 0) return 1;
  const double places = static_cast<double>(a.multiprocessors);
  const double tiles = w.count * std::ceil(w.m / kTile) * std::ceil(w.n / kTile);
  // Few tiles are split along k as well, so that at least every multiprocessor has one.
  if (tiles <= places) return 1;
  return tiles / places / std::ceil(tiles / places);
}

// Linear in the logarithms between the numbers of rows that were measured.
double share_of_rows(double rows, const std::vector<Accelerator::RowShare>& known) {
  const auto above =
      std::find_if(known.begin(), known.end(), [&](const auto& k) { return k.rows >= rows; });
  if (above == known.begin()) return known.front().share;
  if (above == known.end()) return known.back().share;
  const auto &low = above[-1], &high = *above;
  const double at = std::log(rows / low.rows) / std::log(high.rows / low.rows);
  return low.share * std::pow(high.share / low.share, at);
}

double share_of(const Work& w, const Efficiency& e, const Accelerator& a) {
  if (w.in_f32) return e.products * kF32Share;
  switch (w.unit) {
    case Unit::kMatmul:
      return e.products * (a.matmul_shares.empty() ? product_share(a, w.k)
                                                   : share_of_rows(w.m, a.matmul_shares));
    case Unit::kAttention:
    case Unit::kAttentionBackward:
      // Naive: two products.
      if (w.seqlen == 0 && !a.matmul_shares.empty())
        return e.products * share_of_rows(w.m, a.matmul_shares);
      if (w.seqlen == 0) return e.products * product_share(a, w.k);
      return e.attention *
             attention_share(a, w.kernel, w.seqlen, w.head_dim, w.unit == Unit::kAttentionBackward);
    case Unit::kRows:
      return a.sustained.product;
  }
  return 1;
}

}  // namespace

std::string_view bound_name(Bound bound) {
  constexpr std::string_view kNames[] = {"compute", "memory", "launch"};
  return kNames[static_cast<int>(bound)];
}

Work matmul_work(std::string_view name, double m, double n, double k, double bytes, double count) {
  Work w;
  w.name = name, w.unit = Unit::kMatmul;
  w.flops = 2 * m * n * k * count;
  w.bytes = bytes * (m * k + k * n + m * n) * count;
  w.m = m, w.n = n, w.k = k, w.count = count;
  return w;
}

Work rows_work(std::string_view name, double bytes) {
  Work w;
  w.name = name, w.bytes = bytes;
  return w;
}

WorkPrice price(const Work& w, const Accelerator& a, const Efficiency& e, Number dtype) {
  WorkPrice p;
  if (w.unit == Unit::kMatmul) p.wave = wave_share(w, a);
  // Attention has no fp8 kernel that training trusts.
  const bool is_attention = w.unit == Unit::kAttention || w.unit == Unit::kAttentionBackward;
  if (w.in_f32) dtype = Number::kF32;
  const double peak = a.peak(is_attention && dtype == Number::kF8 ? Number::kBf16 : dtype);
  if (w.flops > 0 && peak > 0) p.peak_s = w.flops / peak;
  if (w.flops > 0 && peak > 0) p.flops_s = w.flops / (peak * share_of(w, e, a) * p.wave);
  p.bytes_s = w.bytes / memory_rate(a, e);
  p.launch_s = (a.launch_s + (w.unit == Unit::kMatmul ? a.product_start_s : 0)) * w.launches;
  // Weights that few rows read once: half of the shorter term does not hide behind the other.
  if (w.unit == Unit::kMatmul && a.product_start_s > 0)
    p.apart_s = 0.5 * std::min(1.0, kFewRows / w.m) * std::min(p.flops_s, p.bytes_s);
  p.seconds = p.launch_s + std::max(p.flops_s, p.bytes_s) + p.apart_s;
  p.bound = p.launch_s > std::max(p.flops_s, p.bytes_s) ? Bound::kLaunch
            : p.flops_s >= p.bytes_s                    ? Bound::kCompute
                                                        : Bound::kMemory;
  return p;
}

Seconds price(std::span<const Work> works, const Accelerator& a, const Efficiency& e,
              Number dtype) {
  Seconds sum;
  double peak_s = 0;
  for (const Work& w : works) {
    const WorkPrice p = price(w, a, e, dtype);
    (p.bound == Bound::kCompute  ? sum.compute
     : p.bound == Bound::kMemory ? sum.memory
                                 : sum.launch) += p.seconds;
    peak_s += p.peak_s;
  }
  if (sum.compute > 0) sum.compute /= clock_share(a, peak_s / sum.total());
  return sum;
}

}  // namespace tegula
