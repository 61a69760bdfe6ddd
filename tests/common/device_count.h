// FLOPs as the kernels of the CUDA plug-in count them themselves (tegula/kernels/cuda/count.h).
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>

#include "tegula/base/result.h"

namespace tegula::testing {

using CountedFlops = int64_t (*)();

// Since its last call. Null where TEGULA_COUNT_FLOPS is not set, so that kernels do not count.
// Where it is, the plug-in named by TEGULA_CUDA_PLUGIN must be open: a test that was to compare
// counts does not go on without.
inline CountedFlops device_counter() {
  if (std::getenv("TEGULA_COUNT_FLOPS") == nullptr) return nullptr;
  const char* plugin = std::getenv("TEGULA_CUDA_PLUGIN");
  TEGULA_CHECK(plugin != nullptr, "TEGULA_COUNT_FLOPS is set, TEGULA_CUDA_PLUGIN is not");
  void* library = ::dlopen(plugin, RTLD_NOW | RTLD_NOLOAD);
  TEGULA_CHECK(library != nullptr, plugin, " is not the plug-in that was opened");
  void* counted = ::dlsym(library, "tegula_cuda_counted_flops");
  TEGULA_CHECK(counted != nullptr, plugin, " has no tegula_cuda_counted_flops");
  return reinterpret_cast<CountedFlops>(counted);
}

}  // namespace tegula::testing
