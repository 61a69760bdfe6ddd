#include "tegula/kernels/cuda/dot_fused_text.h"

#include "tegula/kernels/cuda/tile_writer.h"

namespace tegula::cuda {

namespace {

// A function of a piece, and in it the loop over what a thread takes at once.
void open_function(TileWriter& w, const char* returned, const char* name, const char* before) {
  w.line("__device__ __forceinline__ ", returned, " ", name, "(const Epilogue& p, ", before,
         "Index row, Index column, Index n_columns) {");
  w.open();
}

void open_parts(TileWriter& w) {
  w.line("#pragma unroll");
  w.line("for (int part = 0; part < ", kPieceColumns, "; part += U) {");
  w.open();
  w.line("const Index i = row * n_columns + column + part;  // in row-major order");
  w.line(w.layout().n_inner == 1 ? "const Index x0 = i;"
                                 : "const Index x0 = row, x1 = column + part;");
}

void close(TileWriter& w, const char* after = "") {
  w.close();
  w.line("}", after);
}

}  // namespace

std::string dot_fused_text(const tile::Program& p, const TileCall& call) {
  const TilePhases phases = tile_phases(p, true);
  const TilePhase& phase = phases.phases.front();
  TileWriter w(p, call);
  const auto operand = [&](uint16_t v) { return static_cast<size_t>(w.at(v).imm); };
  const auto access = [&](uint16_t v) { return w.layout().access[operand(v)]; };
  // Is it loaded as one, not as an array of elements?
  const auto is_whole = [&](uint16_t v) {
    return w.is_vector(operand(v)) || access(v) == TileAccess::kSame;
  };
  std::vector<uint16_t> given, factors;
  for (const uint16_t v : phase.body)
    if (w.at(v).op == tile::Op::kLoad)
      (access(v) == TileAccess::kGiven ? given : factors).push_back(v);

  w.params("tegula::cuda::tile", "Epilogue");
  w.line("constexpr int U = ", w.layout().vector, ";  // neighbours that are loaded at once");
  w.line("struct Factors {");
  w.open();
  for (const uint16_t v : factors) {
    const std::string storage = cat(tile_dtype(w.at(v).dtype), "::Storage");
    w.line(w.is_vector(operand(v)) ? cat("Pack<", storage, ", U>") : storage, " a", v, "[",
           kPieceColumns, " / U]", is_whole(v) ? "" : "[U]", ";");
  }
  w.close();
  w.line("};\n");

  open_function(w, "Factors", "load", "");
  w.line("Factors f;");
  if (!factors.empty()) {
    open_parts(w);
    w.loads(factors, "");
    for (const uint16_t v : factors)
      is_whole(v) ? w.line("f.a", v, "[part / U] = a", v, ";")
                  : w.line("for (int u = 0; u < U; ++u) f.a", v, "[part / U][u] = a", v, "[u];");
    close(w);
  }
  w.line("return f;");
  close(w, "\n");

  open_function(w, "void", "prefetch", "");
  if (!factors.empty()) {
    open_parts(w);
    for (const uint16_t v : factors)
      if (access(v) == TileAccess::kVector)
        w.line("if (part == 0) prefetch_l2(p.", w.name_of(operand(v)), " + ",
               w.offset(operand(v), ""), ");");
    close(w);
  }
  close(w, "\n");

  open_function(w, "void", "epilogue", "const Factors& f, const char* product, ");
  w.count_once_where("(row == 0 && column == 0)");
  for (const uint16_t v : phase.row) w.value(v);
  w.count("", "");
  open_parts(w);
  w.line("const char* const given = product + part * 2;");
  w.loads(given, "");
  for (const uint16_t v : factors) w.line("const auto& a", v, " = f.a", v, "[part / U];");
  write_loaded_body(w, phase);
  close(w), close(w, "\n");
  w.line("}  // namespace tegula::cuda::tile\n");
  w.line("#include \"tegula/kernels/cuda/matmul_fused_sm90.cuh\"");
  return w.text();
}

}  // namespace tegula::cuda
