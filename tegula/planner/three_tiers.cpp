#include "tegula/planner/layer_work.h"
#include "tegula/planner/model_presets.h"
#include "tegula/planner/other_price.h"

namespace tegula::planner {

namespace {

// A socket: 638 TFLOP/s of bf16, 520 MB of SRAM, 64 GB of HBM, 1.5 TB of DDR by its data sheet; a
// node of eight copies more than 1 TB/s from DDR to HBM; 2 TB/s of HBM and 5 µs a collective from
// memory. [Prabhakar et al. 2024]
constexpr double kPeak = 638e12, kHbmBytes = 64e9, kHbmRate = 2e12, kReached = 0.9;
constexpr double kDdrBytes = 1.5e12, kDdrRate = 1e12 / 8, kCollective = 5e-6;

}  // namespace

Result<OtherPrice> price_three_tiers(const ModelSpec& model, const ParamCount& params, int64_t n,
                                     const OtherJob& job) {
  if (!job.serve)
    return unsupported(
        "sambanova-sn40l is priced for serving: add --serve. What its pipelines reach in training "
        "is not public");
  OtherPrice p;
  p.of = "a token of every sequence";
  const double bytes = 2.0 * real(params.total),
               caches = job.batch * job.keys * kv_bytes_per_token(model, 2);
  p.memory_bytes = kHbmBytes, p.memory_needed = (bytes + caches) / real(n);
  if (p.memory_needed > kHbmBytes)
    return unsupported(cat(model.name, " takes ", static_cast<int64_t>(p.memory_needed / 1e9),
                           " GB of HBM a socket on ", n, ", and there are 64"));
  const double read = (2.0 * real(params.active) + caches) / (real(n) * kHbmRate * kReached);
  const double products =
      job.batch * token_flops(model, job.keys).forward() / (real(n) * kPeak * 0.75);
  p.terms = {
      {"weights and caches out of HBM", read, products > read},
      {"products", products, products <= read},
      {"collectives between sockets", n > 1 ? 2 * real(model.n_layers) * kCollective : 0, false},
      {"a switch to this model, from DDR, when another was there", bytes / (real(n) * kDdrRate),
       true}};
  p.assumed = {
      "2 TB/s of HBM a socket, of which .9 is reached, and 5 µs a collective (from memory)",
      "125 GB/s from DDR to HBM a socket",
      cat("DDR holds ", static_cast<int64_t>(real(n) * kDdrBytes / bytes), " models of this size")};
  return p;
}

PublishedFigure published_three_tiers() {
  const ModelSpec m = find_model_preset("llama2-7b")->model;
  const ParamCount params = *count_params(m);
  const OtherJob job{true, 0, 1, 1024, Number::kBf16};
  const double switching = price_three_tiers(m, params, 8, job)->terms.back().seconds;
  const double a100 =
      2.0 * static_cast<double>(params.total) / find_accelerator("a100")->host_bytes_per_s;
  return {"a switch of expert on 8 sockets against a DGX A100",
          "times as fast",
          "Prabhakar et al. 2024, abstract",
          "experts of Llama 2 7B; the DGX copies one over one card's PCIe at 31.5 GB/s",
          31,
          a100 / switching};
}

}  // namespace tegula::planner
