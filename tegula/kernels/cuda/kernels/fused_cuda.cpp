// Tile programs as CUDA text, compiled for each program and layout (tile_text.h).
#include "tegula/kernels/cuda/describe/check.h"
#include "tegula/tile/space.h"

namespace tegula::cuda {

namespace {
Status check(const KernelQuery& q) {
  TEGULA_TRY(check_device(q, 80));
  if (!q.program || !q.program->resident) return unsupported("fused: there is no sealed program");
  TEGULA_TRY(tile::space_of(*q.program, q.in, q.out));
  return {};
}
}  // namespace

extern constinit const KernelDef fused_cuda{
    .name = "fused_cuda",
    .op = "fused",
    .device = DeviceKind::kCuda,
    .order = "lane16",
    .doc = "Tile programs compiled for the GPU: 16 threads a row, with the bits of the CPU's f32",
    .writes_strides = true,
    .supports = passes<check>,
    .check = check,
};

}  // namespace tegula::cuda
