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
  const auto pack = [&](uint16_t v) {
    return cat("Pack<", tile_dtype(w.at(v).dtype), "::Storage, U>");
  };
  // Packs wait as words: a compiler takes them apart, and so waits for them where they are copied.
  std::vector<uint16_t> given, packs, others;
  for (const uint16_t v : phase.body)
    if (w.at(v).op == tile::Op::kLoad)
      (access(v) == TileAccess::kGiven ? given
       : w.is_vector(operand(v))       ? packs
                                       : others)
          .push_back(v);
  const bool has_factors = !packs.empty() || !others.empty();

  w.params("tegula::cuda::tile", "Epilogue");
  w.line("constexpr int U = ", w.layout().vector, ";  // neighbours that are loaded at once");
  w.line("struct Factors {");
  w.open();
  for (const uint16_t v : packs) w.line("Words<", pack(v), "> a", v, "[", kPieceColumns, " / U];");
  for (const uint16_t v : others)
    w.line(tile_dtype(w.at(v).dtype), "::Storage a", v, "[", kPieceColumns, " / U][U];");
  w.close();
  w.line("};\n");

  open_function(w, "Factors", "load", "");
  w.line("Factors f;");
  if (has_factors) {
    open_parts(w);
    for (const uint16_t v : packs)
      w.line("f.a", v, "[part / U] = *reinterpret_cast<const Words<", pack(v), ">*>(p.",
             w.name_of(operand(v)), " + ", w.offset(operand(v), ""), ");");
    w.loads(others, "");
    for (const uint16_t v : others)
      w.line("for (int u = 0; u < U; ++u) f.a", v, "[part / U][u] = a", v,
             access(v) == TileAccess::kSame ? ";" : "[u];");
    close(w);
  }
  w.line("return f;");
  close(w, "\n");

  open_function(w, "void", "prefetch", "");
  if (!packs.empty()) {
    open_parts(w);
    for (const uint16_t v : packs)
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
  w.line("const char* const given0 = product + part * 2;");
  w.loads(given, "");
  for (const uint16_t v : packs)
    w.line("const auto& a", v, " = reinterpret_cast<const ", pack(v), "&>(f.a", v, "[part / U]);");
  for (const uint16_t v : others)
    w.line("const auto& a", v, " = f.a", v, "[part / U]",
           access(v) == TileAccess::kSame ? "[0]" : "", ";");
  write_loaded_body(w, phase);
  close(w), close(w, "\n");
  w.line("}  // namespace tegula::cuda::tile\n");
  w.line("#include \"tegula/kernels/cuda/matmul_fused_sm90.cuh\"");
  return w.text();
}

}  // namespace tegula::cuda
