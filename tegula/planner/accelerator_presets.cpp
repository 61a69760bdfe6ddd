// Data sheets. Peaks in 10^12 dense operations a second, bandwidths in 10^9 bytes a second. Where
// kernels have a Target of the name, bf16, f32, memory bandwidth and multiprocessors come from it.
#include <vector>

#include "tegula/planner/sustained.h"

namespace tegula::planner {

namespace {

constexpr double kTera = 1e12, kGiga = 1e9, kMega = 1e6;

struct Peaks {
  double f64, f32, tf32, bf16, f8, i8;
};

// Latencies of one message as NCCL's own tuning model has them: some 1 µs by NVLink and 5 µs or
// more through a network card.
constexpr double kInsideSeconds = 1e-6, kPcieSeconds = 2e-6, kNetworkSeconds = 6e-6;

Accelerator sheet(const char* name, const char* source, Peaks p, double memory_gb,
                  double gb_per_s) {
  Accelerator a;
  a.name = name, a.source = source;
  const double peaks[] = {p.f64, p.f32, p.tf32, p.bf16, p.f8, p.i8};
  for (int i = 0; i < kNumbers; ++i) a.flops_per_s[i] = kTera * peaks[i];
  a.memory_bytes = kGiga * memory_gb, a.memory_bytes_per_s = kGiga * gb_per_s;
  a.launch_s = 3e-6;
  return a;
}

// n devices a node; GB/s one way within it, and of each one's share of the network.
Accelerator linked(Accelerator a, int64_t n, double inside, double between,
                   bool is_switched = true) {
  a.devices_per_node = n;
  a.inside = {kGiga * inside, is_switched ? kInsideSeconds : kPcieSeconds};
  a.between = {kGiga * between, kNetworkSeconds};
  return a;
}

Accelerator chip(Accelerator a, int64_t multiprocessors, double sram_kib, double l2_mb,
                 double sparse, double dollars_per_hour, double host_gb_per_s = 0) {
  a.multiprocessors = multiprocessors, a.sram_bytes = 1024 * sram_kib, a.l2_bytes = kMega * l2_mb;
  a.sparse = sparse, a.dollars_per_hour = dollars_per_hour;
  a.host_bytes_per_s = kGiga * host_gb_per_s;
  return a;
}

// A device that the kernels plan for by the same name has one source.
void take(const Target& t, Accelerator& a) {
  a.target = t.name;
  a.flops_per_s[static_cast<int>(Number::kBf16)] = t.bf16_flops_per_s;
  a.flops_per_s[static_cast<int>(Number::kF32)] = t.f32_flops_per_s;
  a.memory_bytes_per_s = t.bytes_per_s;
  a.multiprocessors = t.multiprocessors;
}

// Sets what large products reach at the full clock, the k of half of it, the clock that products
// leave.
Accelerator sustains(Accelerator a, Accelerator::Generation generation, AttentionKernel attention,
                     Accelerator::Sustained shares) {
  a.generation = generation, a.attention = attention, a.sustained = shares;
  return a;
}

// By the name of the first preset that a name begins with. H200: measured (sustained.h). A100: 257
// of 312 TFLOP/s on random data [He 2024, "Strangely, matrix multiplications on GPUs run faster
// when given predictable data"], and some less under power for long. H100: an H200's chip under the
// same limit; the PCIe card has half of it. B200: some 1.55 of 2.25 PFLOP/s. The others: not known.
void add_sustained(Accelerator& a) {
  using Generation = Accelerator::Generation;
  const auto is = [&](std::string_view name) { return a.name.starts_with(name); };
  const auto cudnn = AttentionKernel::kCudnn;
  if (is("a100-pcie"))
    a = sustains(a, Generation::kAmpere, AttentionKernel::kFlash2, {.82, 100, .8});
  else if (is("a100"))
    a = sustains(a, Generation::kAmpere, AttentionKernel::kFlash2, {.82, 100, .92});
  else if (is("h100-pcie"))
    a = sustains(a, Generation::kHopper, cudnn, {.845, 150, .6});
  else if (is("h100") || is("h200") || is("h800"))
    a = sustains(a, Generation::kHopper, cudnn, {.845, 150, .75});
  else if (is("b200") || is("gb200"))
    a = sustains(a, Generation::kHopper, cudnn, {.845, 150, .8});
}

// Prices are list prices on demand of one large cloud or another, 2024: they are for comparing, and
// --dollars-per-hour says better.
std::vector<Accelerator> make_presets() {
  std::vector<Accelerator> all = {
      chip(linked(sheet("v100", "NVIDIA V100 data sheet (SXM2, fp16 for bf16)",
                        {7.8, 15.7, 0, 125, 0, 0}, 32, 900),
                  8, 150, 12.5),
           80, 128, 6, 1, 2.5, 15.8),
      chip(linked(sheet("a100-pcie-40gb", "NVIDIA A100 data sheet", {9.7, 19.5, 156, 312, 0, 624},
                        40, 1555),
                  8, 31.5, 25, false),
           108, 192, 40, 2, 3.0, 31.5),
      chip(linked(sheet("a100-pcie", "NVIDIA A100 data sheet (80 GB)",
                        {9.7, 19.5, 156, 312, 0, 624}, 80, 1935),
                  8, 31.5, 25, false),
           108, 192, 40, 2, 3.4, 31.5),
      chip(linked(sheet("a100-40gb", "NVIDIA A100 data sheet (SXM)", {9.7, 19.5, 156, 312, 0, 624},
                        40, 1555),
                  8, 300, 25),
           108, 192, 40, 2, 3.4, 31.5),
      chip(linked(sheet("a100", "NVIDIA A100 data sheet (SXM, 80 GB)",
                        {9.7, 19.5, 156, 312, 0, 624}, 80, 2039),
                  8, 300, 25),
           108, 192, 40, 2, 4.1, 31.5),
      chip(linked(sheet("h100", "NVIDIA H100 data sheet (SXM)", {34, 67, 494.7, 989, 1979, 1979},
                        80, 3350),
                  8, 450, 50),
           132, 228, 50, 2, 6.0, 63),
      chip(linked(sheet("h100-pcie", "NVIDIA H100 data sheet (PCIe)",
                        {26, 51, 378, 756, 1513, 1513}, 80, 2000),
                  8, 63, 50, false),
           114, 228, 50, 2, 5.0, 63),
      chip(linked(sheet("h200", "NVIDIA H200 data sheet (SXM)", {34, 67, 494.7, 989, 1979, 1979},
                        141, 4800),
                  8, 450, 50),
           132, 228, 50, 2, 7.0, 63),
      chip(linked(sheet("h800",
                        "an H100 whose NVLink has 400 of 900 GB/s (DeepSeek-V3 2024, section 3.1)",
                        {1, 67, 494.7, 989, 1979, 1979}, 80, 3350),
                  8, 200, 50),
           132, 228, 50, 2, 6.0, 63),
      chip(linked(sheet("gb200", "NVIDIA GB200 NVL72 data sheet, a seventy-second",
                        {40, 80, 1250, 2500, 5000, 5000}, 186, 8000),
                  72, 900, 50),
           148, 228, 126, 2, 12.0, 225),
      chip(linked(sheet("b200", "NVIDIA HGX B200 data sheet, an eighth",
                        {37, 75, 1100, 2250, 4500, 4500}, 180, 7700),
                  8, 900, 50),
           148, 228, 126, 2, 9.0, 63),
      chip(linked(sheet("l4", "NVIDIA L4 data sheet", {0.49, 30.3, 60, 121, 242, 242}, 24, 300), 8,
                  31.5, 12.5, false),
           58, 128, 48, 2, 0.8, 31.5),
      chip(linked(sheet("t4", "NVIDIA T4 data sheet (fp16 for bf16)", {0.25, 8.1, 0, 65, 0, 130},
                        16, 320),
                  4, 15.8, 6.25, false),
           40, 96, 4, 1, 0.53, 15.8),
      chip(linked(sheet("rtx4090", "NVIDIA Ada whitepaper, table 2",
                        {1.29, 82.6, 82.6, 165.2, 330.3, 660.6}, 24, 1008),
                  8, 31.5, 12.5, false),
           128, 128, 72, 2, 0.7, 31.5),
      chip(linked(sheet("mi300x", "AMD MI300X data sheet",
                        {163.4, 163.4, 653.7, 1307.4, 2614.9, 2614.9}, 192, 5300),
                  8, 448, 50),
           304, 64, 256, 2, 5.0, 63),
      chip(linked(sheet("tpu-v4", "Jouppi et al. 2023, table 4: links of a 3-D torus",
                        {0, 0, 0, 275, 0, 275}, 32, 1200),
                  4096, 150, 3.1),
           0, 0, 128, 1, 3.22),
      chip(linked(sheet("tpu-v5p", "Google Cloud TPU v5p page: links of a 3-D torus",
                        {0, 0, 0, 459, 0, 918}, 95, 2765),
                  8960, 300, 6.25),
           0, 0, 0, 1, 4.2),
  };
  for (Accelerator& a : all)
    for (const Target& t : target_presets())
      if (t.name == a.name) take(t, a);
  for (Accelerator& a : all) {
    add_sustained(a);
    a.has_bf16 = a.name != "v100" && a.name != "t4";
  }
  return all;
}

}  // namespace

std::span<const Accelerator> accelerator_presets() {
  static const std::vector<Accelerator> presets = make_presets();
  return presets;
}

}  // namespace tegula::planner
