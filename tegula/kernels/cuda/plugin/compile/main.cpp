// tegula_cuda_compile --check [WORD]: compiles the covering set of variants, or those with WORD in
//   their names, and prints what each takes; fails on a spill, on serialized products, or where a
//   block exceeds a multiprocessor.
// tegula_cuda_compile --pack FILE: what is built into the plug-in. An empty file without NVRTC.
// Needs NVRTC, and no GPU.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <mutex>
#include <optional>
#include <thread>

#include "tegula/kernels/cuda/cache.h"
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
  if (mode != "--check" || argc > 3) {
    std::fprintf(stderr, "usage: tegula_cuda_compile --check [WORD] | --pack FILE\n");
    return 2;
  }
  if (const auto version = nvrtc_version(); !version.ok()) {
    std::printf("skipped: %s\n", version.error().message.c_str());
    return kSkipped;
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
