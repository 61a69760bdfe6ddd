#include <cmath>

#include "tegula/planner/layer_work.h"
#include "tegula/planner/other_price.h"
#include "tegula/planner/print.h"

namespace tegula::planner {

namespace {

struct Card {
  std::string_view name;
  double peak_f16, peak_f8, dram_rate, memory_bytes;
  double core_sram;  // bytes
};
// n150s, docs.tenstorrent.com: 72 cores of 1.5 MB, 288 GB/s, 12 GB, 74 TFLOP/s of f16, 262 of f8.
constexpr Card kWormhole{"tenstorrent-wormhole", 74e12, 262e12, 288e9, 12e9, 1.5e6};
// e150, Thüning 2024, section II: 120 cores of 1 MB, of which 9 · 12 compute; 118.4 GB/s, 8 GB, 92
// TFLOP/s of f16, 332 of f8.
constexpr Card kGrayskull{"tenstorrent-grayskull", 92e12, 332e12, 118.4e9, 8e9, 1e6};
constexpr double kGrayskullCores = 9 * 12, kGrayskullSramRate = 384e9;  // of a core
constexpr double kReached = 0.9;
constexpr double kTile = 32;  // rows of scores that a core holds at a time

// An exponential of one element on one Grayskull core: 33.72 µs for the 1024² / 64 of its share in
// the paper's measurement of single operations (figure 5, data/grayskull/fused.csv). That is a
// single operation's speed as efficiency.h has them, not the kernel's that it is held against.
constexpr double kExponential = 33.72e-6 / (1024.0 * 1024 / 64);

Result<OtherPrice> price_card(const Card& card, const ModelSpec& model, const ParamCount& params,
                              int64_t n, const OtherJob& job) {
  if (!job.serve) return unsupported(cat(card.name, " is priced for serving: add --serve"));
  if (n > 1)
    return unsupported(cat(card.name,
                           " is priced for one card: what links reach between cards is not in its "
                           "data sheet"));
  const bool is_narrow = job.dtype == Number::kF8 || job.dtype == Number::kI8;
  const double element = is_narrow ? 1 : 2, peak = is_narrow ? card.peak_f8 : card.peak_f16;
  OtherPrice p;
  p.of = "a token of every sequence";
  const double caches = job.batch * job.keys * kv_bytes_per_token(model, element);
  p.memory_bytes = card.memory_bytes, p.memory_needed = element * real(params.total) + caches;
  if (p.memory_needed > p.memory_bytes)
    return unsupported(cat(model.name, " takes ", gb(p.memory_needed), ", and the card has ",
                           gb(p.memory_bytes), is_narrow ? "" : ": --dtype fp8 halves it"));
  const bool fits = kTile * job.keys * 4 <= card.core_sram;
  const double heads = real(model.n_layers) * real(model.n_heads) * job.batch;
  const double scores = fits ? 0 : 2 * 2 * heads * job.keys;  // out and in, two bytes each
  const double rate = card.dram_rate * kReached;
  const double read = (element * real(params.active) + caches) / rate;
  const double products = job.batch * token_flops(model, job.keys).forward() / (peak * 0.75);
  p.terms = {{"weights and caches out of DRAM", read, products > read},
             {"products", products, products <= read},
             {fits ? "scores stay in SRAM" : "scores out to DRAM and back", scores / rate, false}};
  p.assumed = {cat(card.dram_rate / 1e9, " GB/s of DRAM of which .9, ", card.peak_f16 / 1e12,
                   " TFLOP/s of f16 or ", card.peak_f8 / 1e12, " of f8 of which .75"),
               cat("a core of ", card.core_sram / 1e6, " MB holds 32 rows of scores of up to ",
                   static_cast<int64_t>(card.core_sram / kTile / 4), " keys in f32")};
  return p;
}

}  // namespace

// Fused: scores lie on 8 · 8 cores, which pass over them for scale, maximum, difference, sum and
// quotient within SRAM and write the result. Alone: rows of tiles over all cores that compute; they
// come from DRAM and go back. A core that waits for DRAM computes nothing.
SoftmaxTime grayskull_softmax(double n, bool is_fused) {
  const double dram = kGrayskull.dram_rate * kReached, out = 2 * n * n;
  const double cores = is_fused ? 64 : kGrayskullCores;
  const double elements = is_fused ? n * n / cores : std::ceil(n / kTile / cores) * kTile * n;
  return {elements * kExponential, 5 * 2 * 2 * elements / kGrayskullSramRate,
          (is_fused ? out : 2 * out) / dram};
}

Result<OtherPrice> price_wormhole(const ModelSpec& model, const ParamCount& params, int64_t n,
                                  const OtherJob& job) {
  return price_card(kWormhole, model, params, n, job);
}
Result<OtherPrice> price_grayskull(const ModelSpec& model, const ParamCount& params, int64_t n,
                                   const OtherJob& job) {
  return price_card(kGrayskull, model, params, n, job);
}

PublishedFigure published_grayskull() {
  return {"softmax of 4096² scores in SRAM, inside the kernel fused with their product (e150)",
          "ms",
          "Thüning 2024, table I",
          "an exponential takes 2.06 ns a core, as measured by itself; no core waits for another",
          1.05,
          1e3 * grayskull_softmax(4096, true).seconds()};
}

PublishedFigure published_wormhole() {
  return {"Llama 3.1 8B, 32 sequences at once, behind 128 tokens (n150)",
          "tokens/s of each",
          "tenstorrent/tt-metal, README at v0.56.0-rc6",
          "weights of 8 bits; no op waits for another",
          24,
          tokens_per_s(price_wormhole, "llama3-8b", 1, {true, 0, 32, 128, Number::kF8})};
}

}  // namespace tegula::planner
