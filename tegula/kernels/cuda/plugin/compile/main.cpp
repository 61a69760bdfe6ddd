// tegula_cuda_compile --check [WORD]: compiles the covering set of variants, or those with WORD in
//   their names, and prints what each takes; fails on a spill, on serialized products, or where a
//   block exceeds a multiprocessor.
// tegula_cuda_compile --resources FILE: writes what each of them takes
// (describe/kernel_resources.h);
//   with --compare it only says whether that is what the program has.
// tegula_cuda_compile --pack FILE: what is built into the plug-in. An empty file without NVRTC.
// Needs NVRTC, and no GPU.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <mutex>
#include <optional>
#include <thread>

#include "tegula/base/algorithm.h"
#include "tegula/kernels/cuda/cache.h"
#include "tegula/kernels/cuda/describe/kernel_resources.h"
#include "tegula/kernels/cuda/variants.h"

namespace tegula::cuda {
namespace {

constexpr int kSkipped = 77;  // what ctest takes for "skipped"

using Results = std::vector<std::optional<Result<Compiled>>>;

// With a cache, as kernels of a program: a build that changes no device source compiles nothing.
// `done` is called for each as it comes, by one thread at a time.
template <class Done>
Results compile_all(const std::vector<KernelVariant>& variants, const KernelCache* cache,
                    Done done) {
  Results results(variants.size());
  std::atomic<size_t> next = 0;
  std::mutex one;
  const auto compile = [cache](const KernelVariant& v) -> Result<Compiled> {
    if (cache == nullptr) return compile_kernel(v.source, v.defines, v.arch);
    return TEGULA_TRY(compile_cached(*cache, v.source, v.defines, v.arch)).kernel;
  };
  const auto work = [&] {
    for (size_t i = next++; i < variants.size(); i = next++) {
      results[i] = compile(variants[i]);
      const std::lock_guard lock(one);
      done(variants[i], *results[i]);
    }
  };
  std::vector<std::thread> threads;
  for (unsigned t = 1; t < std::thread::hardware_concurrency(); ++t) threads.emplace_back(work);
  work();
  for (std::thread& t : threads) t.join();
  return results;
}

// Empty: it may stay as it is.
std::string fault_of(const KernelVariant& v, const Compiled& c) {
  std::string why;
  if (c.spill_bytes > 0) why += cat(" spills ", c.spill_bytes, " bytes;");
  if (c.is_serialized) why += " products are serialized;";
  if (c.registers * v.threads > kRegistersOfBlock)
    why += cat(" ", c.registers, " registers of ", v.threads, " threads exceed ", kRegistersOfBlock,
               ";");
  if (const int smem = v.smem_bytes + c.smem_bytes; smem > smem_limit_bytes(v.arch))
    why += cat(" ", smem, " bytes of shared memory exceed ", smem_limit_bytes(v.arch), ";");
  return why;
}

int check(const std::vector<KernelVariant>& variants) {
  const auto begin = std::chrono::steady_clock::now();
  int n_faults = 0;
  double slowest = 0, sum = 0;
  std::printf("%-56s %-7s %9s %7s %7s %7s %6s\n", "variant", "arch", "registers", "threads",
              "shared", "spilled", "s");
  const auto report = [&](const KernelVariant& v, const Result<Compiled>& c) {
    const std::string fault = c.ok() ? fault_of(v, *c) : c.error().message;
    n_faults += !fault.empty();
    std::printf("%-56s %-7s ", v.name.c_str(), v.arch.c_str());
    if (c.ok()) {
      slowest = std::max(slowest, c->seconds), sum += c->seconds;
      std::printf("%9d %7d %7d %7d %6.2f", c->registers, v.threads, v.smem_bytes + c->smem_bytes,
                  c->spill_bytes, c->seconds);
    }
    std::printf("%s\n", fault.c_str());
    std::fflush(stdout);
  };
  compile_all(variants, nullptr, report);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::printf("%zu variants in %.1f s (%.1f s of processors), the slowest %.2f s, %d faults\n",
              variants.size(), seconds, sum, slowest, n_faults);
  return n_faults == 0 ? 0 : 1;
}

struct Row {
  std::string name;
  int capability, threads, registers, static_smem, dynamic_smem;
  auto operator<=>(const Row&) const = default;
};

// The resources of the covering set, in order; empty after an error, which was printed.
std::vector<Row> resources(const KernelCache* cache) {
  const auto variants = covering_variants();
  std::vector<Row> rows;
  bool is_whole = true;
  compile_all(variants, cache, [&](const KernelVariant& v, const Result<Compiled>& c) {
    if (!c.ok()) std::fprintf(stderr, "%s\n", c.error().to_string().c_str());
    is_whole &= c.ok();
    if (c.ok())
      rows.push_back({v.name, v.arch == "sm_80" ? 80 : 90, v.threads, c->registers, c->smem_bytes,
                      v.smem_bytes});
  });
  if (!is_whole) rows.clear();
  std::sort(rows.begin(), rows.end());
  return rows;
}

int write_resources(const char* path) {
  const std::vector<Row> rows = resources(nullptr);
  std::ofstream f(path);
  f << "// Written by tegula_cuda_compile --resources; do not edit.\n"
       "#include \"tegula/kernels/cuda/describe/kernel_resources.h\"\n\n"
       "namespace tegula::cuda {\n\nnamespace {\n// clang-format off\n"
       "constexpr KernelResources kResources[] = {\n";
  for (const Row& r : rows)
    f << "    {\"" << r.name << "\", " << r.capability << ", " << r.threads << ", " << r.registers
      << ", " << r.static_smem << ", " << r.dynamic_smem << "},\n";
  f << "};\n// clang-format on\n}  // namespace\n\n"
       "std::span<const KernelResources> kernel_resources() { return kResources; }\n\n"
       "}  // namespace tegula::cuda\n";
  f.close();
  if (!f) std::fprintf(stderr, "cannot write %s: %s\n", path, std::strerror(errno));
  return f && !rows.empty() ? 0 : 1;
}

int compare_resources() {
  const std::vector<Row> rows = resources(nullptr);
  std::vector<Row> known;
  for (const KernelResources& r : kernel_resources())
    known.push_back({std::string(r.name), r.capability, r.threads, r.registers, r.static_smem_bytes,
                     r.dynamic_smem_bytes});
  std::vector<Row> differ;
  std::set_symmetric_difference(rows.begin(), rows.end(), known.begin(), known.end(),
                                std::back_inserter(differ));
  for (const Row& r : differ)
    std::printf("%s, %d: %d registers, %d + %d bytes are %s\n", r.name.c_str(), r.capability,
                r.registers, r.static_smem, r.dynamic_smem,
                std::binary_search(rows.begin(), rows.end(), r) ? "not in the table" : "no more");
  std::printf("%zu variants, %zu differ\n", rows.size(), differ.size());
  return rows.empty() || !differ.empty() ? 1 : 0;
}

// Lines "key size", an empty line, and the cubins one after the other.
int pack(const char* path) {
  const auto version = nvrtc_version();
  std::string head, body;
  if (version.ok()) {
    const auto variants = ahead_variants();
    const KernelCache cache{.folder = cat(path, ".cache")};
    const Results results = compile_all(variants, &cache, [](const auto&...) {});
    for (size_t i = 0; i < variants.size(); ++i) {
      const KernelVariant& v = variants[i];
      if (!(*results[i]).ok()) {
        std::fprintf(stderr, "%s\n", (*results[i]).error().to_string().c_str());
        return 1;
      }
      const std::string& cubin = (*results[i])->cubin;
      head += cat(kernel_key(v.source, v.defines, v.arch, kAheadVersion), " ", cubin.size(), "\n");
      body += cubin;
    }
    head += "\n";
  } else {
    std::fprintf(stderr, "note: nothing is built in: %s\n", version.error().message.c_str());
  }
  std::ofstream f(path, std::ios::binary);
  f << head << body;
  f.close();
  if (!f) std::fprintf(stderr, "cannot write %s: %s\n", path, std::strerror(errno));
  return f ? 0 : 1;
}

int run(int argc, char** argv) {
  const std::string_view mode = argc > 1 ? argv[1] : "";
  if (mode == "--pack" && argc == 3) return pack(argv[2]);
  const bool is_resources = mode == "--resources" && argc == 3;
  if (!is_resources && (mode != "--check" || argc > 3)) {
    std::fprintf(stderr,
                 "usage: tegula_cuda_compile --check [WORD] | --resources FILE | --resources "
                 "--compare | --pack FILE\n");
    return 2;
  }
  if (const auto version = nvrtc_version(); !version.ok()) {
    std::printf("skipped: %s\n", version.error().message.c_str());
    return kSkipped;
  }
  if (is_resources) {
    // Another compiler gives other registers.
    if (const std::string version = *nvrtc_version(); version != "13.0") {
      std::printf("skipped: the table is NVRTC 13.0's, this is %s\n", version.c_str());
      return kSkipped;
    }
    return std::string_view(argv[2]) == "--compare" ? compare_resources()
                                                    : write_resources(argv[2]);
  }
  auto variants = covering_variants();
  if (argc == 3)
    std::erase_if(variants, [&](const KernelVariant& v) {
      return v.name.find(argv[2]) == std::string::npos;
    });
  return check(variants);
}

}  // namespace
}  // namespace tegula::cuda

int main(int argc, char** argv) { return tegula::cuda::run(argc, argv); }
