#include <algorithm>

#include "tegula/planner/layer_work.h"
#include "tegula/planner/other_price.h"

namespace tegula::planner {

namespace {

// Wormhole n150s, docs.tenstorrent.com: 72 cores of 1.5 MB, 288 GB/s, 12 GB, 74 TFLOP/s of f16 and
// 262 of f8.
constexpr double kPeakF16 = 74e12, kPeakF8 = 262e12, kDram = 288e9, kMemory = 12e9;
constexpr double kCoreSram = 1.5e6, kReached = 0.9;
constexpr double kTile = 32;  // rows of scores that a core holds at a time

double real(int64_t n) { return static_cast<double>(n); }

// Bytes that softmax alone moves: scores in and out; fused with the product before it, out only.
double softmax_bytes(double elements, bool is_fused) { return 2 * elements * (is_fused ? 1 : 2); }

}  // namespace

Result<OtherPrice> price_scores_in_sram(const ModelSpec& model, const ParamCount& params, int64_t n,
                                        const OtherJob& job) {
  if (!job.serve) return unsupported("tenstorrent-wormhole is priced for serving: add --serve");
  if (n > 1)
    return unsupported(
        "tenstorrent-wormhole is priced for one card: what its links reach between cards is not in "
        "its data sheet");
  const bool is_narrow = job.dtype == Number::kF8 || job.dtype == Number::kI8;
  const double element = is_narrow ? 1 : 2, peak = is_narrow ? kPeakF8 : kPeakF16;
  OtherPrice p;
  p.of = "a token of every sequence";
  const double caches = job.batch * job.keys * kv_bytes_per_token(model, element);
  p.memory_bytes = kMemory, p.memory_needed = element * real(params.total) + caches;
  if (p.memory_needed > kMemory)
    return unsupported(cat(model.name, " takes ", static_cast<int64_t>(p.memory_needed / 1e9),
                           " GB, and the card has 12: --dtype fp8 halves it"));
  const bool fits = kTile * job.keys * 4 <= kCoreSram;
  const double heads = real(model.n_layers) * real(model.n_heads) * job.batch;
  const double scores = fits ? 0 : 2 * softmax_bytes(heads * job.keys, true);
  const double rate = kDram * kReached;
  const double read = (element * real(params.active) + caches) / rate;
  const double products = job.batch * token_flops(model, job.keys).forward() / (peak * 0.75);
  p.terms = {{"weights and caches out of DRAM", read, products > read},
             {"products", products, products <= read},
             {fits ? "scores stay in SRAM" : "scores out to DRAM and back", scores / rate, false}};
  p.assumed = {"288 GB/s of DRAM of which .9, 74 TFLOP/s of f16 or 262 of f8 of which .75",
               cat("a core of 1.5 MB holds 32 rows of scores of up to ",
                   static_cast<int64_t>(kCoreSram / kTile / 4), " keys in f32")};
  return p;
}

PublishedFigure published_scores_in_sram() {
  const double n = 1024.0 * 1024;
  return {"softmax inside the fused kernel against softmax alone, on Grayskull",
          "times as fast",
          "Thüning 2024, abstract",
          "both are bound by DRAM, which takes reads and writes alike",
          1.8,
          softmax_bytes(n, false) / softmax_bytes(n, true)};
}

}  // namespace tegula::planner
