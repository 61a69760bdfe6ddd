#include "tegula/kernels/cuda/tile_end_text.h"

#include "tegula/kernels/cuda/tile_writer.h"

namespace tegula::cuda {

std::string tile_end_text(const tile::Program& p, const TileCall& call, std::span<const int> of,
                          const char* name_space) {
  const TilePhases phases = tile_phases(p, true);
  const TilePhase& phase = phases.phases.front();
  TileWriter w(p, call);
  w.params(name_space, "End");
  w.line("template <class Given>");
  w.line("__device__ __forceinline__ void element(const End& p, Index i, const Given* given) {");
  w.open();
  w.count_once_where("(i == 0)");
  for (const uint16_t v : phase.row) w.value(v);
  w.count("", "");
  w.line("constexpr int U = 1;");
  w.coordinates("i");
  for (size_t k = 0; k < of.size(); ++k)
    if (of[k] >= 0) w.line("const Given* const given", k, " = given + ", of[k], ";");
  write_body(w, phase);
  w.close();
  w.line("}\n");
  w.line("}  // namespace ", name_space, "\n");
  return w.text();
}

}  // namespace tegula::cuda
