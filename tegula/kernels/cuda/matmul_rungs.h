// The lower rungs of the matmul ladder from the host: f32 on the ordinary units.
//
//   c[m, n] = a[m, k] b[k, n], all f32 and row after row without gaps
//
// Numerics: an output is one chain of fused multiply-adds over ascending k from 0, on every rung,
// so all of them give the same bits.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tegula/kernels/cuda/driver.h"

namespace tegula::cuda {

struct MatmulRung {
  std::string_view name, source, kernel;
  int tile_m, tile_n;  // outputs of a block of 256 threads
  std::vector<std::string> defines;
};

// v1, v1_5, v2, v3, v3_coalesced, v3_conflict_free, v3_double_buffered.
std::span<const MatmulRung> matmul_rungs();

// invalid_argument for an empty product, unsupported where an operand has 2^32 elements or more.
Status check_matmul_rung(int64_t m, int64_t n, int64_t k);

// A compiled rung in the current context.
class MatmulRungKernel {
 public:
  static Result<MatmulRungKernel> load(const MatmulRung& rung, const std::string& cubin);
  Status launch(const float* a, const float* b, float* c, int64_t m, int64_t n, int64_t k,
                const Stream& stream) const;

 private:
  MatmulRungKernel(const MatmulRung& rung, Module module, FunctionHandle function)
      : rung_(&rung), module_(std::move(module)), function_(function) {}
  const MatmulRung* rung_;
  Module module_;
  FunctionHandle function_;
};

}  // namespace tegula::cuda
