// The calls that the reductions over any dims take. One kernel serves every layout; a row program
// (fused) is chosen before it where trailing dims are reduced and something follows.
#pragma once

#include "tegula/kernels/cuda/describe/check.h"

namespace tegula::cuda {

inline constexpr int64_t kReduceChunk = 64;  // of the reduced elements, one chain

struct ReduceSizes {
  int64_t kept = 1, reduced = 1;
  int64_t n_parts() const {
    return reduced <= kReduceChunk ? 1 : (reduced + kReduceChunk - 1) / kReduceChunk;
  }
};
inline ReduceSizes reduce_sizes(const KernelQuery& q) {
  ReduceSizes s;
  s.kept = q.out[0].numel();
  for (const int64_t d : q.attrs->ints("dims")) s.reduced *= q.in[0].shape[d];
  return s;
}

inline bool check_reduce(const KernelQuery& q) {
  const DType t = q.in[0].dtype;
  return is_float(t) && size_bytes(t) > 1 && q.out[0].dtype == t &&
         !q.attrs->ints("dims").empty() && reduce_sizes(q).n_parts() < 65536;
}

inline int64_t reduce_workspace_bytes(const KernelQuery& q) {
  const ReduceSizes s = reduce_sizes(q);
  return s.n_parts() == 1 ? 0 : s.n_parts() * s.kept * (q.in[0].dtype == DType::kF64 ? 8 : 4);
}

// The kernel of an op of that kind.
constexpr KernelDef reduce_kernel(std::string_view name, std::string_view op) {
  KernelDef k;
  k.name = name, k.op = op, k.device = DeviceKind::kCuda, k.order = "chunks64";
  k.doc = "chains of 64 elements, joined in a fixed order";
  k.supports = check_reduce, k.workspace_bytes = reduce_workspace_bytes;
  return k;
}

}  // namespace tegula::cuda
