#include "tegula/kernels/cuda/dot_fused_text.h"

#include "tegula/kernels/cuda/tile_writer.h"

namespace tegula::cuda {

std::string dot_fused_text(const tile::Program& p, const TileCall& call) {
  const TileLayout& layout = call.layout;
  const TilePhases phases = tile_phases(p, true);
  const TilePhase& phase = phases.phases.front();
  TileWriter w(p, call);
  w.params("tegula::cuda::tile", "Epilogue");
  w.line(
      "__device__ __forceinline__ void epilogue(const Epilogue& p, const char* product, "
      "Index row,");
  w.line("                                         Index column, Index n_columns) {");
  w.open();
  w.line("constexpr int U = ", layout.vector, ";");
  w.count_once_where("(row == 0 && column == 0)");
  for (const uint16_t v : phase.row) w.value(v);
  w.count("", "");
  w.line("#pragma unroll");
  w.line("for (int part = 0; part < ", kPieceColumns, "; part += U) {");
  w.open();
  w.line("const char* const given = product + part * 2;");
  w.line("const Index i = row * n_columns + column + part;  // in row-major order");
  if (layout.n_inner == 1) {
    w.line("const Index x0 = i;");
  } else {
    w.line("const Index x0 = row, x1 = column + part;");
  }
  write_body(w, phase);
  w.close();
  w.line("}");
  w.close();
  w.line("}\n");
  w.line("}  // namespace tegula::cuda::tile\n");
  w.line("#include \"tegula/kernels/cuda/matmul_fused_sm90.cuh\"");
  return w.text();
}

}  // namespace tegula::cuda
