#include "tegula/kernels/cuda/tile_text.h"

#include "tegula/kernels/cuda/tile_writer.h"

namespace tegula::cuda {

void write_body(TileWriter& w, const TilePhase& phase) {
  w.loads(phase.body, "");
  write_loaded_body(w, phase);
}

void write_loaded_body(TileWriter& w, const TilePhase& phase) {
  w.open_stores(phase.stores);
  w.line("#pragma unroll");
  w.line("for (int u = 0; u < U; ++u) {");
  w.open();
  for (const uint16_t v : phase.body) w.value(v);
  w.count("", "");
  w.fill_stores(phase.stores);
  w.close();
  w.line("}");
  w.write_stores(phase.stores, "");
}

// One phase: U neighbours of the flat position are loaded, computed and stored together.
void write_elements(TileWriter& w, const TilePhases& phases) {
  const TilePhase& phase = phases.phases.front();
  for (const uint16_t v : phase.row) w.value(v);
  w.count("", "");
  w.line("const auto body = [&](auto width, Index i) {");
  w.open();
  w.line("constexpr int U = decltype(width)::value;");
  w.coordinates("i");
  write_body(w, phase);
  w.close();
  w.line("};");
  const int n = w.layout().vector;
  w.line("const Index n = static_cast<Index>(p.n), whole = n / ", n, ";");
  w.line("const Index first = static_cast<Index>(block) * ", w.layout().n_threads,
         " + static_cast<Index>(", w.thread(), ");");
  w.line("const Index step = static_cast<Index>(n_blocks) * ", w.layout().n_threads, ";");
  w.line("for (Index k = first; k < whole; k += step) body(Width<", n, ">{}, k * ", n, ");");
  if (n > 1) w.line("if (first < n - whole * ", n, ") body(Width<1>{}, whole * ", n, " + first);");
}

void write_program(TileWriter& w) {
  const TileLayout& layout = w.layout();
  const TilePhases phases =
      tile_phases(w.program(), layout.keep != TileKeep::kStreamed, layout.is_early);
  layout.is_columns ? write_columns(w, phases)
  : layout.is_rows  ? write_rows(w, phases)
                    : write_elements(w, phases);
}

std::string tile_text(const tile::Program& p, const TileCall& call) {
  TileWriter w(p, call);
  w.head();
  write_program(w);
  return w.finish();
}

}  // namespace tegula::cuda
