#include "tegula/kernels/cuda/plugin/launch.h"

#include <cstdio>
#include <set>

#include "tegula/kernels/cuda/cache.h"
#include "tegula/kernels/cuda/plugin/ahead.h"

namespace tegula::cuda {

Result<std::string> cubin_of(std::string_view source, const std::vector<std::string>& defines) {
  TEGULA_TRY(open_cuda_device());
  const std::string arch = arch_of(device_capability());
  if (const auto built_in = ahead_cubin(source, defines, arch); !built_in.empty())
    return std::string(built_in);
  CachedKernel kernel = TEGULA_TRY(compile_cached(KernelCache::standard(), source, defines, arch));
  static auto& told = *new std::set<std::string>();
  if (!kernel.note.empty() && told.insert(kernel.note).second)
    std::fprintf(stderr, "note: %s\n", kernel.note.c_str());
  return std::move(kernel.kernel.cubin);
}

Status check_device(int least, int most) {
  const int have = device_capability();
  if (have >= least && have <= most) return {};
  return unsupported(cat("it is for compute capability ", least / 10, ".", least % 10,
                         most == least ? "" : " and newer", ", this device has ", have / 10, ".",
                         have % 10));
}

Status check_smem(int bytes) {
  const int most = max_smem_bytes(device_capability());
  if (bytes <= most) return {};
  return unsupported(
      cat("its blocks take ", bytes / 1024, " KB of shared memory, this device has ", most / 1024));
}

}  // namespace tegula::cuda
