#include "tegula/kernels/cuda/tile_prologue_text.h"

#include "tegula/base/round.h"
#include "tegula/kernels/cuda/tile_writer.h"

namespace tegula::cuda {

namespace {
int64_t result_words(const TensorRef& t) {
  return round_up(t.numel() * size_bytes(t.dtype), int64_t{16}) / 8;
}
}  // namespace

int64_t tile_results_bytes(std::span<const TensorRef> out) {
  int64_t words = 0;
  for (const TensorRef& t : out) words += result_words(t);
  return 8 * words;
}

std::string tile_prologue_text(const tile::Program& p, const TileCall& call,
                               std::span<const TensorRef> out, size_t wanted,
                               const char* name_space) {
  TileWriter w(p, call);
  w.count_where("(blockIdx.x == 0)");
  w.head(name_space, "Prologue");
  write_program(w);
  w.close();
  w.line("}\n");
  w.line("constexpr int kResults = ", tile_results_bytes(out) / 16, ";");
  w.line("__device__ __forceinline__ const void* prologue(const Prologue& p, float4* results) {");
  w.open();
  w.line("Prologue here = p;");
  int64_t at = 0;
  for (size_t o = 0; o < out.size(); ++o) {
    w.line("here.out", o, " = reinterpret_cast<", tile_dtype(out[o].dtype),
           "::Storage*>(results + ", at / 2, ");");
    at += result_words(out[o]);
  }
  w.line("for (u32 block = 0; block < ", call.n_blocks, "; ++block) {");
  w.line("  run(here, block, ", call.n_blocks, ");");
  w.line("  __syncthreads();");
  w.line("}");
  const int n_threads = call.layout.n_threads;
  for (size_t o = 0; o < out.size(); ++o)
    w.line("for (int i = static_cast<int>(blockIdx.x * ", n_threads, " + threadIdx.x); i < ",
           out[o].numel(), "; i += static_cast<int>(gridDim.x * ", n_threads, ")) p.out", o,
           "[i] = here.out", o, "[i];");
  w.line("return here.out", wanted, ";");
  w.close();
  w.line("}\n");
  w.line("}  // namespace ", name_space, "\n");
  return w.text();
}

int64_t tile_prologue_bytes(const tile::Program& p, const TileCall& call,
                            std::span<const TensorRef> out) {
  const TileLayout& l = call.layout;
  const TilePhases phases = tile_phases(p, l.keep != TileKeep::kStreamed, l.is_early);
  int64_t bytes = tile_results_bytes(out);
  for (const TilePhase& phase : phases.phases)
    bytes += 8 * static_cast<int64_t>(phase.reduced.size());
  return bytes + (l.is_rows ? tile_room_bytes(p, phases, l) : 0);
}

}  // namespace tegula::cuda
