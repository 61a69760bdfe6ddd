// Programs of rows: 16 threads a row, in order "lane16".
#include "tegula/kernels/cuda/tile_writer.h"

namespace tegula::cuda {

namespace {

using tile::Instr;
using tile::Op;

std::string_view combiner(Op op) {
  switch (op) {
    case Op::kReduceSum:
      return "Sum";
    case Op::kReduceProd:
      return "Product";
    case Op::kReduceMax:
      return "Largest";
    default:
      return "Smallest";
  }
}

// What the empty reduction gives.
std::string start(const Instr& i) {
  const std::string_view type = tile_dtype(i.dtype);
  const bool is_int = tile::class_of(i.dtype) == tile::Class::kI64;
  if (i.op == Op::kReduceSum) return "0";
  if (i.op == Op::kReduceProd) return "1";
  if (is_int) return cat(type, i.op == Op::kReduceMax ? "::kLeast" : "::kGreatest");
  if (i.dtype == DType::kBool) return i.op == Op::kReduceMax ? "0" : "1";
  const std::string inf =
      i.dtype == DType::kF64 ? "as_double(0x7ff0000000000000u)" : "as_float(0x7f800000u)";
  return i.op == Op::kReduceMax ? cat("-", inf) : inf;
}

class Rows {
 public:
  Rows(TileWriter& w, const TilePhases& phases) : w_(w), phases_(phases), l_(w.layout()) {}

  void run() {
    place();
    keep();
    for (size_t k = 0; k < phases_.phases.size(); ++k) {
      const TilePhase& phase = phases_.phases[k];
      for (const uint16_t v : phase.row) w_.value(v);
      if (!phase.walks()) continue;
      for (const uint16_t v : phase.reduced)
        w_.line(tile_value_type(w_.at(v).dtype), " r", v, " = ", start(w_.at(v)), ";");
      w_.line("{");
      w_.open();
      body(phase);
      walk();
      w_.close();
      w_.line("}");
      for (const uint16_t v : phase.reduced) join(v);
    }
    store_rows();
  }

 private:
  // Which row and lane a thread has, and where its row begins in each operand.
  void place() {
    const int rows = l_.rows_per_block;
    if (l_.is_across) {
      w_.line("__shared__ i64 room[", l_.n_threads, "];");
      w_.line("const int lane = static_cast<int>(threadIdx.x) / ", rows,
              ", in_block = static_cast<int>(threadIdx.x) % ", rows, ";");
    } else {
      w_.line(
          "const int lane = static_cast<int>(threadIdx.x) & 15, in_block = "
          "static_cast<int>(threadIdx.x) >> 4;");
      w_.line("const u32 group = 0xffffu << (threadIdx.x & 16);");
    }
    w_.line("i64 row = static_cast<i64>(blockIdx.x) * ", rows, " + in_block;");
    if (l_.is_across) {
      // All threads come to the barriers.
      w_.line("const bool is_there = row < p.n_rows;");
      w_.line("if (!is_there) row = p.n_rows - 1;");
    } else {
      w_.line("if (row >= p.n_rows) return;");
    }
    w_.line("const Index row_len = static_cast<Index>(p.row_len);");
    w_.line("i64 rest = row;");
    for (int d = l_.n_outer - 1; d > 0; --d) {
      w_.line("const i64 y", d, " = rest % p.outer", d, ";");
      w_.line("rest /= p.outer", d, ";");
    }
    for (size_t k = 0; k < l_.access.size(); ++k) {
      if (l_.access[k] == TileAccess::kOne) continue;
      std::string at = "0";
      for (int d = 0; d < l_.n_outer; ++d)
        at = cat(d == 0 ? std::string() : at + " + ", d == 0 ? "rest" : cat("y", d), " * p.",
                 w_.name_of(k), "_outer", d);
      w_.line("auto* const ", w_.name_of(k), " = p.", w_.name_of(k), " + ",
              l_.n_outer == 0 ? "0" : at, ";");
    }
  }

  void keep() {
    if (phases_.kept.empty()) return;
    if (l_.keep == TileKeep::kShared) {
      w_.line("extern __shared__ double kept[];");
      w_.line("char* keep_at = reinterpret_cast<char*>(kept) + in_block * p.row_bytes;");
      w_.line("const Index steps = (row_len + 15) / 16;");
    }
    for (const uint16_t v : phases_.kept) {
      const std::string_view type = tile_value_type(w_.at(v).dtype);
      if (l_.keep == TileKeep::kRegisters) {
        w_.line(type, " k", v, "[", l_.row_steps, "];");
      } else {
        w_.line(type, "* const k", v, " = reinterpret_cast<", type, "*>(keep_at) + lane;");
        w_.line("keep_at += steps * 16 * sizeof(", type, ");");
      }
    }
    if (l_.keep == TileKeep::kRegisters && !l_.is_whole)
      w_.line("const bool has_last = ", 16 * (l_.row_steps - 1), " + lane < row_len;");
  }

  bool has_guard() const { return l_.keep == TileKeep::kRegisters && !l_.is_whole; }
  std::string guard(bool stores) const {
    std::string g = has_guard() ? cat("t + u < ", l_.row_steps - 1, " || has_last") : "";
    if (stores && l_.is_across) g = g.empty() ? "is_there" : cat("is_there && (", g, ")");
    return g.empty() ? "" : cat("if (", g, ") ");
  }
  std::string kept(uint16_t v) const {
    return l_.keep == TileKeep::kRegisters ? cat("k", v, "[t + u]") : cat("k", v, "[(t + u) * 16]");
  }
  bool is_kept(uint16_t v) const {
    for (const uint16_t k : phases_.kept)
      if (k == v) return true;
    return false;
  }

  void body(const TilePhase& phase) {
    const bool by_registers = l_.keep == TileKeep::kRegisters;
    w_.line("const auto body = [&](auto width, ", by_registers ? "int" : "Index", " t) {");
    w_.open();
    w_.line("constexpr int U = decltype(width)::value;");
    w_.loads(phase.body, guard(false).c_str());
    w_.open_stores(phase.stores);
    w_.line("#pragma unroll");
    w_.line("for (int u = 0; u < U; ++u) {");
    w_.open();
    w_.line("const Index c = static_cast<Index>(t + u) * 16 + lane;");
    for (const uint16_t v : phase.read)
      w_.line("const ", tile_value_type(w_.at(v).dtype), " v", v, " = ", kept(v), ";");
    for (const uint16_t v : phase.body) {
      w_.value(v);
      if (is_kept(v)) w_.line(kept(v), " = v", v, ";");
    }
    for (const uint16_t v : phase.reduced)
      w_.line(guard(false), "r", v, " = ", combiner(w_.at(v).op), "::of(r", v, ", v",
              w_.at(v).src[0], ");");
    w_.fill_stores(phase.stores);
    w_.close();
    w_.line("}");
    w_.write_stores(phase.stores, guard(true).c_str());
    w_.close();
    w_.line("};");
  }

  void walk() {
    const int n = l_.vector;
    if (l_.keep == TileKeep::kRegisters) {
      const int steps = l_.row_steps, whole = steps / n * n;
      if (whole > 0) {
        w_.line("#pragma unroll");
        w_.line("for (int t = 0; t < ", whole, "; t += ", n, ") body(Width<", n, ">{}, t);");
      }
      if (steps > whole) w_.line("body(Width<", steps - whole, ">{}, ", whole, ");");
      return;
    }
    // This lane's steps.
    w_.line("const Index mine = (row_len - lane + 15) / 16;");
    w_.line("Index t = 0;");
    if (n > 1) w_.line("for (; t + ", n, " <= mine; t += ", n, ") body(Width<", n, ">{}, t);");
    w_.line("for (; t < mine; ++t) body(Width<1>{}, t);");
  }

  void join(uint16_t v) {
    const Instr& i = w_.at(v);
    const std::string_view c = combiner(i.op);
    const std::string all =
        l_.is_across ? cat("joined_across<", c, ", ", l_.rows_per_block, ">(room, r", v, ")")
                     : cat("joined<", c, ">(group, r", v, ")");
    w_.line("const ", tile_value_type(i.dtype), " v", v, " = ", tile_dtype(i.dtype), "::round(",
            all, ");");
  }

  // By one thread of a row, after all have read what may lie there.
  void store_rows() {
    if (phases_.row_stores.empty()) return;
    w_.line(l_.is_across ? "__syncthreads();" : "__syncwarp(group);");
    w_.line("if (lane == 0", l_.is_across ? " && is_there" : "", ") {");
    w_.open();
    for (const uint16_t v : phases_.row_stores)
      w_.line("*", w_.name_of(w_.operand_of_store(v)), " = ", tile_dtype(w_.at(v).dtype),
              "::narrow(v", w_.at(v).src[0], ");");
    w_.close();
    w_.line("}");
  }

  TileWriter& w_;
  const TilePhases& phases_;
  const TileLayout& l_;
};

}  // namespace

void write_rows(TileWriter& w, const TilePhases& phases) { Rows(w, phases).run(); }

}  // namespace tegula::cuda
