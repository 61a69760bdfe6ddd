#include "tegula/kernels/cpu/isa/dot_thin.h"

#include "tegula/kernels/cpu/isa/dot_thin_tasks.h"

namespace tegula::kernel::TEGULA_ISA_NS {

void dot_thin(const KernelCall& call, const Contraction& c, const TensorRef& a,
              const TensorRef& b) {
  switch (c.in_dtype) {
    case DType::kF32:
      return thin::run<float, ThinOrder::kChain>(call, c, a, b);
    case DType::kBF16:
      return thin::run<bf16, ThinOrder::kChain>(call, c, a, b);
    case DType::kF16:
      return thin::run<f16, ThinOrder::kChain>(call, c, a, b);
    default:
      return;
  }
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
