
#include "tegula/base/algorithm.h"
#include "tegula/planner/layer_work.h"
#include "tegula/planner/other_price.h"

namespace tegula::planner {

namespace {

// GroqChip 1: 230 MB, 188 and 750 TOP/s by its data sheet; 900 MHz (Abts et al. 2020, abstract).
// The bandwidth that products read is less than the sheet's 80 TB/s: four arrays of 320 lanes that
// take 16 bytes a lane and cycle.
constexpr double kSramBytes = 230e6, kProductBytes = 4 * 320 * 16 * 0.9e9;
constexpr double kPeakF16 = 188e12, kPeakI8 = 750e12;
// "less than 3 microseconds of end-to-end system latency" among up to 10,440 chips: taken as what
// one exchange takes. [Abts et al. 2022, abstract]
constexpr double kExchange = 3e-6;
// A product that waits for the one before it: what 20,400 images a second of ResNet-50 one by one
// leave beside their 8.2 GFLOPs, over the 50 layers in a row that it has. [Abts et al. 2020,
// abstract; He et al. 2016, table 1]
constexpr double kDependent = (1 / 20400.0 - 8.2e9 / kPeakI8) / 50;
// Attention's q k v, scores, values, out; feed-forward's up and gate, down.
constexpr double kProductsInARow = 6;

}  // namespace

Result<OtherPrice> price_static_schedule(const ModelSpec& model, const ParamCount& params,
                                         int64_t n, const OtherJob& job) {
  if (!job.serve)
    return unsupported(
        "groq-lpu is priced for serving: add --serve. It has no memory beside the SRAM that holds "
        "the weights, so what training keeps has no place");
  const double element = job.dtype == Number::kI8 ? 1 : 2;
  OtherPrice p;
  p.of = "a token of every sequence";
  p.memory_bytes = kSramBytes;
  const double caches = job.batch * job.keys * kv_bytes_per_token(model, 2);
  p.memory_needed = (element * real(params.total) + caches) / real(n);
  if (p.memory_needed > p.memory_bytes)
    return unsupported(cat(n, "xgroq-lpu hold ", n * 230, " MB, the weights and caches take ",
                           static_cast<int64_t>(p.memory_needed * real(n) / 1e6),
                           " MB, and there is no other memory: take ",
                           static_cast<int64_t>(p.memory_needed * real(n) / kSramBytes) + 1));
  // Every chip reads its own weights once while a token passes all groups, one after another.
  const double groups = std::min(real(model.n_layers), real(n)), g = real(n) / groups;
  const double read = groups * p.memory_needed / kProductBytes;
  const double peak = job.dtype == Number::kI8 ? kPeakI8 : kPeakF16;
  const double products = job.batch * token_flops(model, job.keys).forward() / (g * peak);
  const double layers = real(model.n_layers), exchanges = layers * (g > 1 ? 4 : 0) + (groups - 1);
  p.terms = {
      {"weights and caches out of SRAM", read, products > read},
      {"products", products, products <= read},
      {"products that wait for the one before", layers * kProductsInARow * kDependent, false},
      {"exchanges between chips", exchanges * kExchange, false}};
  p.assumed = {"arrays read 18.4 TB/s a chip",
               "an exchange takes 3 µs, the most that two chips are apart (Abts et al. 2022)",
               "a product that waits .76 µs: what ResNet-50 by ones leaves (Abts et al. 2020)",
               "layers in a row over groups of chips, two all-reduces of two exchanges a layer"};
  return p;
}

PublishedFigure published_static_schedule() {
  return {"Llama 2 70B at a batch of 1",
          "tokens/s",
          "TechPowerUp, 2024-02",
          "576 chips, which hold its weights in 8 bits but not in 16; a context of 4,096 as "
          "published; what the service itself takes is not in it",
          300,
          tokens_per_s(price_static_schedule, "llama2-70b", 576, {true, 0, 1, 4096, Number::kI8})};
}

}  // namespace tegula::planner
