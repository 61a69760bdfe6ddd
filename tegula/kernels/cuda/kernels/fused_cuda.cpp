// Tile programs as CUDA text, compiled for each program and layout (tile_text.h).
#include "tegula/kernels/cuda/describe/check.h"
#include "tegula/kernels/cuda/tile_layout.h"
#include "tegula/tile/space.h"

namespace tegula::cuda {

namespace {
Status check(const KernelQuery& q) {
  TEGULA_TRY(check_device(q, 80));
  if (!q.program || !q.program->resident) return unsupported("fused: there is no sealed program");
  TEGULA_TRY(tile::space_of(*q.program, q.in, q.out));
  if (tile::has_columns(*q.program)) TEGULA_TRY(tile_call(*q.program, q.in, q.out, *q.target));
  return {};
}

// The parts of each column output.
int64_t workspace_bytes(const KernelQuery& q) {
  if (!q.program || !tile::has_columns(*q.program)) return 0;
  const auto space = tile::space_of(*q.program, q.in, q.out);
  if (!space.ok()) return 0;
  int64_t n_columns = 0;
  for (const tile::Operand& o : q.program->outputs) n_columns += o.extent == tile::Extent::kColumn;
  return n_columns * column_parts_bytes(*space);
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
    .workspace_bytes = workspace_bytes,
};

}  // namespace tegula::cuda
