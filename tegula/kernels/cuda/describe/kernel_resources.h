// The resources that the compiled variants take, kept so that it can be told where there is neither
// a GPU nor a compiler: written by `tegula_cuda_compile --resources FILE` (NVRTC 13.0).
#pragma once

#include <span>
#include <string_view>

namespace tegula::cuda {

struct KernelResources {
  std::string_view name;   // KernelVariant::name
  int capability;          // that it was compiled for: 80 or 90
  int threads, registers;  // of a block, of a thread at entry
  int static_smem_bytes, dynamic_smem_bytes;
};
// By name, then capability.
std::span<const KernelResources> kernel_resources();

}  // namespace tegula::cuda
