// FLOPs as the kernels of the CUDA plug-in count them themselves (tegula/kernels/cuda/count.h).
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>

namespace tegula::testing {

using CountedFlops = int64_t (*)();

// Since its last call. Null where kernels do not count: TEGULA_COUNT_FLOPS is not set, or no
// plug-in named by TEGULA_CUDA_PLUGIN has been opened.
inline CountedFlops device_counter() {
  const char* plugin = std::getenv("TEGULA_CUDA_PLUGIN");
  if (std::getenv("TEGULA_COUNT_FLOPS") == nullptr || plugin == nullptr) return nullptr;
  void* library = ::dlopen(plugin, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  return reinterpret_cast<CountedFlops>(::dlsym(library, "tegula_cuda_counted_flops"));
}

}  // namespace tegula::testing
