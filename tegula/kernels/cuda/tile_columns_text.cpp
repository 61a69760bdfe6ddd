// Programs without reductions whose columns are added up (tile_layout.h).
#include "tegula/kernels/cuda/tile_writer.h"

namespace tegula::cuda {

void write_columns(TileWriter& w, const TilePhases& phases) {
  const TilePhase& phase = phases.phases.front();
  const TileLayout& l = w.layout();
  const int n = l.vector, rows = l.rows_per_block;
  w.line("const int lane = static_cast<int>(threadIdx.x) % 32;");
  w.line("const int group = static_cast<int>(threadIdx.x) / 32;");
  w.line("const u32 columns = static_cast<u32>(p.column_blocks), part = block / columns;");
  w.line("const i64 n_parts = n_blocks / columns;");
  w.line("const Index first = (static_cast<Index>(block % columns) * 32 + lane) * ", n, ";");
  w.coordinates("first");
  for (const uint16_t v : phase.sums) w.line("float c", v, "[", n, "] = {};");
  w.line("const i64 end = first < p.row_len ? p.n_rows : 0;");
  w.line("for (i64 row = static_cast<i64>(part) * ", rows, " + group; row < end; row += n_parts * ",
         rows, ") {");
  w.open();
  w.line("constexpr int U = ", n, ";");
  w.find_row();
  for (const uint16_t v : phase.row) w.value(v);
  w.count("", "(first == 0)");
  w.loads(phase.body, "");
  w.open_stores(phase.stores);
  w.line("#pragma unroll");
  w.line("for (int u = 0; u < U; ++u) {");
  w.open();
  w.line("const Index c = first + u;");
  for (const uint16_t v : phase.body) w.value(v);
  w.count_sums(phase.sums);
  w.count("", "");
  w.fill_stores(phase.stores);
  for (const uint16_t v : phase.sums) w.line("c", v, "[u] += v", w.at(v).src[0], ";");
  w.close();
  w.line("}");
  w.write_stores(phase.stores, "");
  w.close();
  w.line("}");
  w.line("__shared__ float room[", rows, "][", 32 * n, "];");
  for (const uint16_t v : phase.sums) {
    w.line("for (int u = 0; u < ", n, "; ++u) room[group][lane * ", n, " + u] = c", v, "[u];");
    w.line("__syncthreads();");
    w.line("for (int e = static_cast<int>(threadIdx.x); e < ", 32 * n, "; e += ", l.n_threads,
           ") {");
    w.line("  const i64 column = static_cast<i64>(block % columns) * ", 32 * n, " + e;");
    w.line("  if (column >= p.row_len) break;");
    w.line("  float sum = room[0][e];");
    w.line("  for (int g = 1; g < ", rows, "; ++g) sum += room[g][e];");
    w.line("  p.", w.name_of(w.operand_of_store(v)), "[part * p.row_len + column] = sum;");
    w.line("}");
    w.line("__syncthreads();");
  }
}

}  // namespace tegula::cuda
