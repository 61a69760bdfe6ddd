#include "tegula/kernels/cuda/plugin/scans.h"

namespace tegula::cuda {

TensorRef reversed(TensorRef t, int dim) {
  t.data = t.as<char>() + (t.shape[dim] - 1) * t.stride[dim] * size_bytes(t.dtype);
  t.stride[dim] = -t.stride[dim];
  return t;
}

Status launch_scan(const char* name, bool is_recurrence, DType t, const LineParams& p,
                   const Stream& to) {
  // With few lines a tile has longer parts.
  const int lines = p.lines.count >= 32 ? 32 : p.lines.count >= 2 ? 8 : 1;
  std::vector<std::string> defines = line_defines(t);
  defines.emplace_back("--ftz=true");  // as on the CPU
  defines.push_back(cat("TEGULA_LINES=", lines));
  defines.push_back(cat("TEGULA_SCAN=", int{is_recurrence}));
  const FunctionHandle f = TEGULA_TRY(plain_kernel("scans.cu", name, defines));
  const Driver* d = TEGULA_TRY(Driver::get());
  return d->start(f, {{ceil_div(p.lines.count, int64_t{lines}), 1, 1}, {256, 1, 1}, 0, true}, to,
                  "launching a scan", p);
}

}  // namespace tegula::cuda
