#include "tegula/kernels/cuda/describe/occupancy.h"

#include <climits>
#include <cstdio>

#include "cli/plan.h"
#include "tegula/base/amounts.h"
#include "tegula/base/text.h"
#include "tegula/io/json.h"
#include "tegula/kernels/cuda/describe/kernel_resources.h"

namespace tegula::cli {

namespace {

struct Explained {
  std::string name;
  cuda::KernelUse use;
  int64_t dynamic_smem_bytes = 0;  // where a kernel's own copies land before they are used
  cuda::Occupancy occupancy;
  cuda::Waves waves;
};

// "threads=256,registers=64,smem=16384"
Result<Explained> given_use(std::string_view text) {
  Explained e{.name = std::string(text)};
  while (!text.empty()) {
    const std::string_view part = take_until(',', text);
    std::string_view number = part;
    const std::string_view what = take_until('=', number);
    const auto read =
        what == "smem" && number != "0" ? read_bytes(number) : read_count(number, 0, INT_MAX);
    const int value = read.ok() && *read <= INT_MAX ? static_cast<int>(*read) : -1;
    if (value < 0 || (what != "threads" && what != "registers" && what != "smem"))
      return invalid_argument(
          cat("--occupancy: '", part, "' is none of threads=N, registers=N and smem=BYTES"));
    if (what == "threads") e.use.threads = value;
    if (what == "registers") e.use.registers = value;
    if (what == "smem") e.use.smem_bytes = e.dynamic_smem_bytes = value;
  }
  return e;
}

// As compiled for the GPU: for Hopper, else for 8.0 and what followed it.
Result<std::vector<Explained>> variants_of(const Target& gpu, const std::string& word) {
  const int capability = gpu.capability == 90 ? 90 : 80;
  std::vector<Explained> found;
  for (const cuda::KernelResources& r : cuda::kernel_resources())
    // Variants with more shared memory than a block has here are not chosen here.
    if (r.name.find(word) != std::string_view::npos && r.capability == capability &&
        r.static_smem_bytes + r.dynamic_smem_bytes <= gpu.smem_bytes)
      found.push_back({.name = std::string(r.name),
                       .use = {r.threads, r.registers, r.static_smem_bytes + r.dynamic_smem_bytes},
                       .dynamic_smem_bytes = r.dynamic_smem_bytes});
  if (!found.empty()) return found;
  return invalid_argument(cat("--occupancy: no kernel for ", gpu.name, " has '", word,
                              "' in its name: attention_mma, matmul_mma, matmul_v3, … (all: "
                              "--occupancy _), or threads=256,registers=64,smem=16384"));
}

double bytes_to_fill(const Target& gpu, const OccupancyFlags& flags) {
  return flags.latency_ns * 1e-9 * gpu.bytes_per_s;
}
int64_t staged_bytes(const Target& gpu, const Explained& e) {
  return e.dynamic_smem_bytes * e.occupancy.blocks * gpu.multiprocessors;
}
double per_thread(double bytes, const Explained& e) {
  return e.occupancy.active_threads == 0 ? 0
                                         : bytes / static_cast<double>(e.occupancy.active_threads);
}

Json json_of(const Target& gpu, const OccupancyFlags& flags, const Explained& e) {
  const cuda::Occupancy& o = e.occupancy;
  Json::Object limits;
  for (const auto& l : o.limits) limits.push_back({std::string(l.by), l.blocks});
  const double fill = bytes_to_fill(gpu, flags);
  Json::Object row = {{"name", e.name},
                      {"threads", e.use.threads},
                      {"registers", e.use.registers},
                      {"smem_bytes", e.use.smem_bytes},
                      {"limits", std::move(limits)},
                      {"limited_by", o.limited},
                      {"blocks_per_multiprocessor", o.blocks},
                      {"active_threads", o.active_threads},
                      {"occupancy", o.share},
                      {"bytes_to_fill", fill},
                      {"bytes_to_fill_per_thread", per_thread(fill, e)},
                      {"staged_bytes", staged_bytes(gpu, e)}};
  if (flags.grid_blocks > 0)
    for (Json::Member& m : std::vector<Json::Member>{{"wave_blocks", e.waves.wave},
                                                     {"whole_waves", e.waves.whole},
                                                     {"tail_blocks", e.waves.tail},
                                                     {"efficiency", e.waves.efficiency}})
      row.push_back(std::move(m));
  return Json(std::move(row));
}

void explain(const Target& gpu, const OccupancyFlags& flags, const Explained& e) {
  const cuda::Occupancy& o = e.occupancy;
  const cuda::MultiprocessorLimits have = cuda::multiprocessor_limits(gpu.capability);
  std::printf("%s on %s\n", e.name.c_str(), to_string(gpu).c_str());
  std::printf("a block              %d threads, %d registers each, %.1f KB of shared memory\n",
              e.use.threads, e.use.registers, static_cast<double>(e.use.smem_bytes) / 1024);
  std::printf("a multiprocessor     %d threads, %d blocks, %d registers, %lld KB\n", have.threads,
              have.blocks, have.registers, static_cast<long long>(have.smem_bytes >> 10));
  std::printf("room for blocks     ");
  for (const auto& l : o.limits)
    std::printf(" %d by %.*s%s", l.blocks, static_cast<int>(l.by.size()), l.by.data(),
                &l == &o.limits.back() ? "\n" : ",");
  std::printf("blocks at once       %d, limited by %.*s: %.1f %% of the threads it could have\n",
              o.blocks, static_cast<int>(o.limited.size()), o.limited.data(), 100 * o.share);
  std::printf("active threads       %d multiprocessors x %d blocks x %d threads = %lld\n",
              gpu.multiprocessors, o.blocks, e.use.threads,
              static_cast<long long>(o.active_threads));
  if (flags.grid_blocks > 0)
    std::printf(
        "waves                %lld blocks, %lld at once: %lld whole waves and %lld blocks, "
        "%.1f %% of the time full\n",
        static_cast<long long>(flags.grid_blocks), static_cast<long long>(e.waves.wave),
        static_cast<long long>(e.waves.whole), static_cast<long long>(e.waves.tail),
        100 * e.waves.efficiency);
  if (gpu.bytes_per_s <= 0) return;
  const double fill = bytes_to_fill(gpu, flags);
  std::printf(
      "memory is busy with  %.0f ns x %.3g TB/s = %.2f MB under way: %.1f bytes of each "
      "active thread\n",
      flags.latency_ns, gpu.bytes_per_s / 1e12, fill / 1e6, per_thread(fill, e));
  if (e.dynamic_smem_bytes > 0)
    std::printf("copies to shared     at most %.2f MB under way: %.1f x that\n",
                static_cast<double>(staged_bytes(gpu, e)) / 1e6,
                static_cast<double>(staged_bytes(gpu, e)) / fill);
}

void print_table(const Target& gpu, const std::vector<Explained>& all) {
  std::printf("%s\n%-56s %7s %9s %9s %6s %9s  %s\n", to_string(gpu).c_str(), "kernel", "threads",
              "registers", "shared", "blocks", "occupancy", "limited by");
  for (const Explained& e : all)
    std::printf("%-56s %7d %9d %9lld %6d %7.1f %%  %.*s\n", e.name.c_str(), e.use.threads,
                e.use.registers, static_cast<long long>(e.use.smem_bytes), e.occupancy.blocks,
                100 * e.occupancy.share, static_cast<int>(e.occupancy.limited.size()),
                e.occupancy.limited.data());
}

}  // namespace

Flag add_occupancy(const Command& cmd, OccupancyFlags& flags) {
  const auto occupancy =
      cmd.add_option("--occupancy", flags.kernel,
                     "Of a GPU by a kernel instead: a part of its name (attention_mma_d64), or "
                     "threads=256,registers=64,smem=16384")
          .type_name("KERNEL");
  whole(cmd.add_option("--grid", flags.grid_blocks, "Blocks of a launch, for waves and tail"), 1)
      .needs(occupancy);
  real(cmd.add_option("--memory-latency", flags.latency_ns,
                      "Nanoseconds of a load from the GPU's memory"),
       1, 1e6)
      .needs(occupancy);
  return occupancy;
}

Status print_occupancy(const Target& gpu, const OccupancyFlags& flags, bool as_json) {
  std::vector<Explained> all;
  if (flags.kernel.find('=') != std::string::npos)
    all.push_back(TEGULA_TRY(given_use(flags.kernel)));
  else
    all = TEGULA_TRY(variants_of(gpu, flags.kernel));
  for (Explained& e : all) {
    e.occupancy = TEGULA_TRY(cuda::occupancy_of(gpu, e.use));
    e.waves = cuda::waves_of(gpu, e.occupancy, flags.grid_blocks);
  }
  if (as_json) {
    const auto row = [&](const Explained& e) { return json_of(gpu, flags, e); };
    const Json j = Json::object({{"target", gpu.name},
                                 {"multiprocessors", gpu.multiprocessors},
                                 {"kernels", json_list(all, row)}});
    print_line(j);
  } else if (all.size() == 1) {
    explain(gpu, flags, all[0]);
  } else {
    print_table(gpu, all);
  }
  return {};
}

}  // namespace tegula::cli
