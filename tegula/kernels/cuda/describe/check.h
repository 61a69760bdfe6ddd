// Shared by the descriptors of CUDA kernels. They judge a query by its target alone, so that a plan
// for a GPU is made where there is none.
#pragma once

#include "tegula/kernels/cuda/capability.h"
#include "tegula/kernels/kernel.h"

namespace tegula::cuda {

// KernelDef::supports for a function that says why not.
template <Status (*kCheck)(const KernelQuery&)>
bool passes(const KernelQuery& q) {
  return kCheck(q).ok();
}

// The types that the tensor cores multiply as it is.
inline bool is_narrow_float(DType t) { return t == DType::kBF16 || t == DType::kF16; }

// unsupported unless the target has the capability `least`, or one up to `most`.
inline Status check_device(const KernelQuery& q, int least, int most = 1 << 10) {
  const int have = q.target->capability;
  if (have >= least && have <= most) return {};
  return unsupported(cat("it is for compute capability ", least / 10, ".", least % 10,
                         most == least ? "" : " and newer", ", ", q.target->name, " has ",
                         have / 10, ".", have % 10));
}

// unsupported unless its blocks may have so much shared memory.
inline Status check_smem(const KernelQuery& q, int64_t bytes) {
  if (bytes <= q.target->smem_bytes) return {};
  return unsupported(cat("its blocks take ", bytes / 1024, " KB of shared memory, ", q.target->name,
                         " has ", q.target->smem_bytes / 1024));
}

}  // namespace tegula::cuda
