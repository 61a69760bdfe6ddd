// The table of devices: GPUs and other accelerators with their links, shares and rent, and CPUs.
// Targets of kernels, passes and plans, and clusters of the planner are made of its rows.
#include "tegula/base/amounts.h"
#include "tegula/cost/sustained.h"
#include "tegula/kernels/cuda/capability.h"

namespace tegula {

namespace {

constexpr double kTera = 1e12, kGiga = 1e9;
constexpr int64_t kKiB = 1 << 10, kMiB = 1 << 20;

// Latencies of one message as NCCL's own tuning model has them: some 1 µs by NVLink and 5 µs or
// more through a network card.
constexpr double kInsideSeconds = 1e-6, kPcieSeconds = 2e-6, kNetworkSeconds = 6e-6;

// Shares: those that large products reach at the full clock, the k of half of it, the clock that
// products leave.
struct Shares {
  double product = Sustained().product, k_half = 0, clock = 1;
  bool is_known = false;
};
// 257 of 312 TFLOP/s on random data [He 2024, Strangely, matrix multiplications on GPUs run faster
// when given predictable data], and some less under power for long; at 300 W.
constexpr Shares kA100 = {.82, 100, .92, true}, kA100Pcie = {.82, 100, .8, true};
// Measured on an H200 (sustained.h); the same chip under the same limit of power, and under half of
// it.
constexpr Shares kH200 = {.845, 150, .75, true}, kH100 = kH200, kH100Pcie = {.845, 150, .6, true};
// 1,745 of 2,250 TFLOP/s in bursts [Bekman, Machine Learning Engineering, maximum achievable matmul
// FLOPS], less under power for long; 668 of 1,300, best of many shapes [the same table].
constexpr Shares kB200 = {.81, 150, .8, true}, kMi300x = {.6, 150, .86, true};

struct Row {
  const char *name, *source;
  struct {
    double f64, f32, tf32, bf16, f8, i8;
  } peaks;  // 10¹² dense operations a second
  struct {
    double gb, gb_per_s;
    int64_t visible_mib = 0;  // as nvidia-smi has it; 0: the kernels are not planned for it
  } memory;
  struct {
    int64_t per_node;
    double inside,
        between;  // GB/s one way, within a node, and of one device's share of the network
    double inside_s = kInsideSeconds;
    double host = 0;  // GB/s one way
  } links;
  struct {
    int capability = 0;
    int64_t multiprocessors = 0;
    double sram_kib = 0, l2_mib = 0;
  } chip;
  double dollars_per_hour;
  Shares shares = {};
};

// Prices are list prices on demand of one large cloud or another, 2024: they are for comparing, and
// --dollars-per-hour says better.
constexpr Row kRows[] = {
    // clang-format off
    {"v100", "NVIDIA V100 data sheet (SXM2, fp16 for bf16)", {7.8, 15.7, 0, 125, 0, 0}, {32, 900},
     {8, 150, 12.5, kInsideSeconds, 15.8}, {70, 80, 128, 6}, 2.5},
    {"a100-pcie-40gb", "NVIDIA A100 data sheet", {9.7, 19.5, 156, 312, 0, 624}, {40, 1555},
     {8, 31.5, 25, kPcieSeconds, 31.5}, {80, 108, 192, 40}, 3.0, kA100Pcie},
    {"a100-pcie", "NVIDIA A100 data sheet (80 GB)", {9.7, 19.5, 156, 312, 0, 624}, {80, 1935},
     {8, 31.5, 25, kPcieSeconds, 31.5}, {80, 108, 192, 40}, 3.4, kA100Pcie},
    {"a100-40gb", "NVIDIA A100 data sheet (SXM)", {9.7, 19.5, 156, 312, 0, 624}, {40, 1555},
     {8, 300, 25, kInsideSeconds, 31.5}, {80, 108, 192, 40}, 3.4, kA100},
    {"a100", "NVIDIA A100 data sheet (SXM, 80 GB)", {9.7, 19.5, 156, 312, 0, 624},
     {80, 2039, 81920}, {8, 300, 25, kInsideSeconds, 31.5}, {80, 108, 192, 40}, 4.1, kA100},
    {"h100", "NVIDIA H100 data sheet (SXM)", {34, 67, 494.7, 989, 1979, 1979}, {80, 3350, 81559},
     {8, 450, 50, kInsideSeconds, 63}, {90, 132, 228, 50}, 6.0, kH100},
    {"h100-pcie", "NVIDIA H100 data sheet (PCIe)", {26, 51, 378, 756, 1513, 1513}, {80, 2000},
     {8, 63, 50, kPcieSeconds, 63}, {90, 114, 228, 50}, 5.0, kH100Pcie},
    {"h200", "NVIDIA H200 data sheet (SXM)", {34, 67, 494.7, 989, 1979, 1979}, {141, 4800, 143771},
     {8, 450, 50, kInsideSeconds, 63}, {90, 132, 228, 50}, 7.0, kH200},
    {"h800", "an H100 whose NVLink has 400 of 900 GB/s (DeepSeek-V3 2024, section 3.1)",
     {1, 67, 494.7, 989, 1979, 1979}, {80, 3350}, {8, 200, 50, kInsideSeconds, 63},
     {90, 132, 228, 50}, 6.0, kH100},
    {"gb200", "NVIDIA GB200 NVL72 data sheet, a seventy-second", {40, 80, 1250, 2500, 5000, 5000},
     {186, 8000}, {72, 900, 50, kInsideSeconds, 225}, {100, 148, 228, 126}, 12.0, kB200},
    {"b200", "NVIDIA HGX B200 data sheet, an eighth", {37, 75, 1100, 2250, 4500, 4500}, {180, 7700},
     {8, 900, 50, kInsideSeconds, 63}, {100, 148, 228, 126}, 9.0, kB200},
    {"a10g", "AWS G5 and NVIDIA A10 data sheet", {0.49, 31.2, 35, 70, 0, 140}, {24, 600, 23028},
     {8, 31.5, 6.25, kPcieSeconds, 31.5}, {86, 80, 128, 6}, 1.0},
    {"l4", "NVIDIA L4 data sheet", {0.49, 30.3, 60, 121, 242, 242}, {24, 300, 23034},
     {8, 31.5, 12.5, kPcieSeconds, 31.5}, {89, 58, 128, 48}, 0.8},
    {"l40s", "NVIDIA L40S data sheet", {1.43, 91.6, 183, 362, 733, 733}, {48, 864, 46068},
     {8, 31.5, 12.5, kPcieSeconds, 31.5}, {89, 142, 128, 96}, 1.9},
    {"t4", "NVIDIA T4 data sheet (fp16 for bf16)", {0.25, 8.1, 0, 65, 0, 130}, {16, 320},
     {4, 15.8, 6.25, kPcieSeconds, 15.8}, {75, 40, 96, 4}, 0.53},
    {"rtx4090", "NVIDIA Ada whitepaper, table 2", {1.29, 82.6, 82.6, 165, 330.3, 660.6},
     {24, 1008, 24564}, {8, 31.5, 12.5, kPcieSeconds, 31.5}, {89, 128, 128, 72}, 0.7},
    {"mi300x", "AMD MI300X data sheet", {163.4, 163.4, 653.7, 1307.4, 2614.9, 2614.9}, {192, 5300},
     {8, 448, 50, kInsideSeconds, 63}, {0, 304, 64, 256}, 5.0, kMi300x},
    {"tpu-v4", "Jouppi et al. 2023, table 4: links of a 3-D torus", {0, 0, 0, 275, 0, 275},
     {32, 1200}, {4096, 150, 3.1}, {0, 0, 0, 128}, 3.22},
    {"tpu-v5p", "Google Cloud TPU v5p page: links of a 3-D torus", {0, 0, 0, 459, 0, 918},
     {95, 2765}, {8960, 300, 6.25}, {}, 4.2}};
// clang-format on

Accelerator accelerator(const Row& r) {
  Accelerator a;
  a.name = r.name, a.source = r.source;
  const double peaks[] = {r.peaks.f64,  r.peaks.f32, r.peaks.tf32,
                          r.peaks.bf16, r.peaks.f8,  r.peaks.i8};
  for (int i = 0; i < kNumbers; ++i) a.flops_per_s[i] = kTera * peaks[i];
  a.has_bf16 = r.chip.capability == 0 || r.chip.capability >= 80;
  a.memory_bytes = kGiga * r.memory.gb, a.memory_bytes_per_s = kGiga * r.memory.gb_per_s;
  a.visible_bytes = r.memory.visible_mib * kMiB;
  a.devices_per_node = r.links.per_node;
  a.inside = {kGiga * r.links.inside, r.links.inside_s};
  a.between = {kGiga * r.links.between, kNetworkSeconds};
  a.host_bytes_per_s = kGiga * r.links.host;
  a.capability = r.chip.capability, a.multiprocessors = r.chip.multiprocessors;
  a.sram_bytes = static_cast<double>(kKiB) * r.chip.sram_kib;
  a.l2_bytes = static_cast<double>(kMiB) * r.chip.l2_mib;
  a.launch_s = 3e-6, a.product_start_s = 2e-6, a.dollars_per_hour = r.dollars_per_hour;
  Sustained& s = a.sustained;
  s.product = r.shares.product, s.k_half = r.shares.k_half, s.clock = r.shares.clock;
  s.is_known = r.shares.is_known;
  if (!s.is_known) s.slow = kSlowUnknown;
  set_attention(a.capability, s);
  return a;
}

Target gpu(const Accelerator& a) {
  Target t;
  t.name = a.name, t.device = DeviceKind::kCuda;
  t.capability = a.capability, t.multiprocessors = static_cast<int>(a.multiprocessors);
  t.smem_bytes = cuda::max_smem_bytes(a.capability);
  t.memory_bytes = a.visible_bytes, t.l2_bytes = static_cast<int64_t>(a.l2_bytes);
  t.bf16_flops_per_s = a.peak(Number::kBf16), t.f32_flops_per_s = a.peak(Number::kF32);
  t.bytes_per_s = a.memory_bytes_per_s;
  return t;
}

// One socket, all its cores: the multiply-adds of their vector units at the all-core clock, and
// memory at its rated speed. Caches are one core's, of the last its share.
struct Cpu {
  const char* name;
  Isa isa;
  int cores;
  CacheSizes caches;
  double ghz;
  int f32_per_clock, bf16_per_clock;
  double gb_per_s;
};
constexpr Cpu kCpus[] = {
    {"zen3", Isa::kAvx2, 64, {{32 * kKiB, 512 * kKiB, 4 * kMiB}}, 2.45, 32, 32, 204.8},
    {"zen4", Isa::kAvx512, 96, {{32 * kKiB, 1 * kMiB, 4 * kMiB}}, 2.4, 32, 64, 460.8},
    {"sapphire-rapids", Isa::kAmx, 56, {{48 * kKiB, 2 * kMiB, 1920 * kKiB}}, 2.0, 64, 2048, 307.2}};

Target cpu(const Cpu& c) {
  Target t;
  t.name = c.name, t.isa = c.isa, t.n_threads = c.cores, t.caches = c.caches;
  t.f32_flops_per_s = kGiga * c.ghz * c.cores * c.f32_per_clock;
  t.bf16_flops_per_s = kGiga * c.ghz * c.cores * c.bf16_per_clock;
  t.bytes_per_s = kGiga * c.gb_per_s;
  return t;
}

// Other names of rows.
constexpr struct {
  std::string_view name, row;
} kAliases[] = {{"a100-80gb", "a100"},           {"a100-sxm", "a100"},
                {"a100-sxm-80gb", "a100"},       {"a100-sxm4-80gb", "a100"},
                {"a100-sxm-40gb", "a100-40gb"},  {"a100-sxm4-40gb", "a100-40gb"},
                {"a100-pcie-80gb", "a100-pcie"}, {"h100-sxm", "h100"},
                {"h100-sxm5", "h100"},           {"h100-80gb", "h100"},
                {"h100-sxm-80gb", "h100"},       {"h200-sxm", "h200"},
                {"h200-141gb", "h200"},          {"v100-32gb", "v100"},
                {"v100-sxm2", "v100"},           {"h100-80gb-hbm3", "h100"},
                {"a100-80gb-pcie", "a100-pcie"}, {"4090", "rtx4090"}};

std::string_view row_name(std::string_view name) {
  for (const auto& alias : kAliases)
    if (is_same_name(alias.name, name)) return alias.row;
  return name;
}

}  // namespace

std::span<const Accelerator> accelerator_presets() {
  static const auto presets = [] {
    std::vector<Accelerator> all;
    for (const Row& r : kRows) all.push_back(accelerator(r));
    return all;
  }();
  return presets;
}

const Accelerator* find_preset(std::string_view name) {
  for (const Accelerator& a : accelerator_presets())
    if (is_same_name(a.name, row_name(name))) return &a;
  return nullptr;
}

std::span<const Target> target_presets() {
  static const auto presets = [] {
    std::vector<Target> all;
    for (const Accelerator& a : accelerator_presets())
      if (a.visible_bytes > 0) all.push_back(gpu(a));
    for (const Cpu& c : kCpus) all.push_back(cpu(c));
    return all;
  }();
  return presets;
}

Result<Target> find_target(std::string_view name) {
  std::string names;
  for (const Target& t : target_presets()) {
    if (is_same_name(t.name, row_name(name))) return t;
    names += cat(names.empty() ? "" : ", ", t.name);
  }
  return invalid_argument(cat("there is no target '", name, "'; targets are ", names));
}

}  // namespace tegula
