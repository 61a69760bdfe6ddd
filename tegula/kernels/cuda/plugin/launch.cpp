#include "tegula/kernels/cuda/plugin/launch.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>

#include "tegula/kernels/cuda/cache.h"
#include "tegula/kernels/cuda/count.h"
#include "tegula/kernels/cuda/plugin/ahead.h"

namespace tegula::cuda {

PreparedLaunches::~PreparedLaunches() {
  for (void* data : kept_) open_cuda_device().value()->release(data);
}

Result<void*> PreparedLaunches::keep(const void* host, int64_t bytes) {
  Device* device = TEGULA_TRY(open_cuda_device());
  void* data = TEGULA_TRY(device->allocate(bytes));
  kept_.push_back(data);
  TEGULA_TRY(device->copy(data, host, bytes));
  return data;
}

namespace {
// Says what is wrong with the cache, once.
CachedKernel told_once(CachedKernel kernel) {
  static auto& told = *new std::set<std::string>();
  static std::mutex one;
  const std::lock_guard lock(one);
  if (!kernel.note.empty() && told.insert(kernel.note).second)
    std::fprintf(stderr, "note: %s\n", kernel.note.c_str());
  return kernel;
}
}  // namespace

// With the kernels' own counters, where a test asks for them.
static std::vector<std::string> counted(std::vector<std::string> defines) {
  if (counts_flops()) defines.emplace_back(kCountDefine);
  return defines;
}

Result<std::string> cubin_of(std::string_view source, const std::vector<std::string>& given) {
  const std::vector<std::string> defines = counted(given);
  Device* device = TEGULA_TRY(open_cuda_device());
  const std::string arch = arch_of(device->target().capability);
  static const bool uses_built_in = std::getenv("TEGULA_COMPILE_KERNELS") == nullptr;
  if (uses_built_in)
    if (const auto built_in = ahead_cubin(source, defines, arch); !built_in.empty())
      return std::string(built_in);
  return told_once(TEGULA_TRY(compile_cached(KernelCache::standard(), source, defines, arch)))
      .kernel.cubin;
}

Result<CachedKernel> cubin_of_text(const std::string& path, const std::string& text,
                                   const std::vector<std::string>& defines) {
  Device* device = TEGULA_TRY(open_cuda_device());
  const std::string arch = arch_of(device->target().capability);
  return told_once(
      TEGULA_TRY(compile_text_cached(KernelCache::standard(), path, text, counted(defines), arch)));
}

}  // namespace tegula::cuda
