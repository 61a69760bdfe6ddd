// Programs of rows, in order "lane16".

#include "tegula/base/algorithm.h"
#include "tegula/kernels/cuda/tile_writer.h"
#include "tegula/tile/long_sum.h"

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

// The result of the empty reduction.
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
  Rows(TileWriter& w, const TilePhases& phases)
      : w_(w), phases_(phases), l_(w.layout()), threads_(w.layout().threads_per_row) {}

  void run() {
    place();
    if (l_.n_columns > 0) open_parts();
    w_.line("const Index row_len = static_cast<Index>(p.row_len);");
    w_.find_row();
    if (l_.n_columns > 0 && !l_.is_ahead) prefetch();
    keep();
    for (const TilePhase& phase : phases_.phases) {
      for (const uint16_t v : phase.row) w_.value(v);
      w_.count("", l_.is_across ? "(lane == 0 && is_there)" : "(lane == 0)");
      if (!phase.walks()) continue;
      for (const uint16_t v : phase.reduced)
        is_long(v) ? w_.line("LongSum r", v, ";")
                   : w_.line(tile_value_type(w_.at(v).dtype), " r", v, " = ", start(w_.at(v)), ";");
      w_.line("{");
      w_.open();
      if (sums_apart(phase)) open_room(phase);
      body(phase);
      walk();
      w_.close();
      w_.line("}");
      join(phase);
    }
    store_rows();
    if (l_.n_columns > 0) close_parts();
  }

 private:
  // Which row, and which of its threads, this one is.
  void place() {
    const int rows = l_.rows_per_block;
    w_.line("const int thread = static_cast<int>(", w_.thread(), ");");
    if (l_.is_block()) {
      w_.line("const int lane = thread;");
      if (l_.n_columns == 0) w_.line("const i64 row = block;");
      w_.line("const int warp = thread / 32;  // of which the first half may sum");
      const int64_t words = tile_room_bytes(w_.program(), phases_, l_) / 8;
      if (words > 0) {
        w_.line("i64* const room = shared_words<0, ", words, ">();");
        w_.line("i64* const sums = shared_words<1, ", n_reductions(), ">();");
      }
    } else if (l_.is_across) {
      w_.line("__shared__ i64 room[", l_.n_threads, "];");
      w_.line("const int lane = thread / ", rows, ";");
      w_.line("i64 row = static_cast<i64>(block) * ", rows, " + thread % ", rows, ";");
      // All threads come to the barriers.
      w_.line("const bool is_there = row < p.n_rows;");
      w_.line("if (!is_there) row = p.n_rows - 1;");
    } else {
      w_.line("const int lane = thread & 15;");
      w_.line("const u32 group = 0xffffu << (thread & 16);");
      if (l_.n_columns > 0) return;
      w_.line("const i64 row = static_cast<i64>(block) * ", rows, " + (thread >> 4);");
      w_.line("if (row >= p.n_rows) return;");
    }
  }

  // The parts of a block, one row after another; a thread's columns are the same in all.
  void open_parts() {
    const int rows = l_.rows_per_block;
    for (const TilePhase& phase : phases_.phases)
      for (const uint16_t v : phase.sums) w_.line("float c", v, "[", l_.row_steps, "] = {};");
    if (l_.is_ahead) open_ahead();
    const std::string first =
        l_.is_block() ? "block" : cat("static_cast<i64>(block) * ", rows, " + (thread >> 4)");
    w_.line("for (i64 row = ", first, "; row < p.n_rows; row += static_cast<i64>(n_blocks) * ",
            rows, ") {");
    w_.open();
  }

  // n… has what the thread reads of a row before its turn: loads that are asked for before the sums
  // of the row before are on their way while those are made.
  void open_ahead() {
    const std::vector<uint16_t> single = w_.single_loads(phases_.phases.front().body);
    for (const uint16_t v : single)
      w_.line(tile_dtype(w_.at(v).dtype), "::Storage n", v, "[", l_.row_steps, "] = {};");
    w_.line("const auto fetch = [&](i64 row) {");
    w_.open();
    w_.line("if (row >= p.n_rows) return;");
    w_.line("constexpr int U = ", l_.row_steps, ", t = 0;");
    w_.line("const Index row_len = static_cast<Index>(p.row_len);");
    w_.find_row();
    w_.load_singles(single, "n", guard(there()));
    w_.close();
    w_.line("};");
    w_.line("fetch(block);");
  }
  void take_ahead(const TilePhase& phase) {
    for (const uint16_t v : w_.single_loads(phase.body)) {
      w_.line(tile_dtype(w_.at(v).dtype), "::Storage a", v, "[U];");
      w_.line("#pragma unroll");
      w_.line("for (int u = 0; u < U; ++u) a", v, "[u] = n", v, "[u];");
    }
  }

  // The lines of the thread's next row: what sums of columns take of the registers leaves few
  // threads, whose own reads would be too few on their way.
  void prefetch() {
    if (l_.n_outer != 1 || l_.n_inner != 1) return;
    w_.line("const i64 ahead = static_cast<i64>(n_blocks) * ", l_.rows_per_block, ";");
    w_.line("if (row + ahead < p.n_rows) {");
    w_.open();
    for (size_t k = 0; k < w_.program().inputs.size(); ++k) {
      if (l_.access[k] != TileAccess::kVector) continue;
      const int line = 128 / size_bytes(w_.program().inputs[k].dtype);
      w_.line("for (Index c = lane * ", line, "; c < row_len; c += ", threads_ * line, ")");
      w_.line("  prefetch_l2(", w_.name_of(k), " + ahead * p.", w_.name_of(k), "_outer0 + c);");
    }
    w_.close();
    w_.line("}");
  }

  void close_parts() {
    if (l_.is_block()) w_.line("__syncthreads();  // the next row has the same shared memory");
    w_.close();
    w_.line("}");
    const int steps = l_.row_steps;
    if (!l_.is_block()) w_.line("__shared__ float columns[", l_.n_threads * steps, "];");
    for (const TilePhase& phase : phases_.phases)
      for (const uint16_t v : phase.sums) {
        const std::string to = cat("p.", w_.name_of(w_.operand_of_store(v)),
                                   "[static_cast<i64>(block) * p.row_len + e]");
        if (l_.is_block()) {
          w_.line("#pragma unroll");
          w_.line("for (int t = 0; t < ", steps, "; ++t) {");
          w_.line("  const int e = t * ", threads_, " + lane;");
          w_.line("  if (e < p.row_len) ", to, " = c", v, "[t];");
          w_.line("}");
          continue;
        }
        const int row = 16 * steps;
        w_.line("#pragma unroll");
        w_.line("for (int t = 0; t < ", steps, "; ++t) columns[(thread >> 4) * ", row,
                " + t * 16 + lane] = c", v, "[t];");
        w_.line("__syncthreads();");
        w_.line("for (int e = thread; e < p.row_len; e += ", l_.n_threads, ") {");
        w_.line("  float sum = columns[e];");
        w_.line("  for (int r = 1; r < ", l_.rows_per_block, "; ++r) sum += columns[r * ", row,
                " + e];");
        w_.line("  ", to, " = sum;");
        w_.line("}");
        w_.line("__syncthreads();");
      }
  }

  void keep() {
    if (l_.keep != TileKeep::kRegisters) return;
    for (const uint16_t v : phases_.kept)
      w_.line(tile_value_type(w_.at(v).dtype), " k", v, "[", l_.row_steps, "];");
  }

  int n_reductions() const {
    size_t n = 0;
    for (const TilePhase& phase : phases_.phases) n += phase.reduced.size();
    return static_cast<int>(n);
  }
  // In a block the 16 chains of a sum are not where the elements are made.
  bool sums_apart(const TilePhase& phase) const { return l_.is_block() && !phase.reduced.empty(); }

  static_assert(kSumPart == 32, "LongSum of tile_math.cuh");
  // A sum of f32 that may have more elements a lane than a part of it has.
  bool is_long(uint16_t v) const {
    const Instr& i = w_.at(v);
    if (i.op != Op::kReduceSum || tile::class_of(i.dtype) != tile::Class::kF32) return false;
    return !has_steps() || l_.row_steps * threads_ > 16 * kSumPart;
  }
  // The sum that the lane has made.
  std::string summed(uint16_t v) const { return cat("r", v, is_long(v) ? ".value()" : ""); }

  // Whether element t + u is there, as a condition; empty where it always is.
  std::string there() const {
    const bool may_end = has_steps() ? !l_.is_whole : l_.is_block();
    return may_end ? cat("(", w_.element(), " < row_len)") : "";
  }
  // Are the steps of a row part of the text?
  bool has_steps() const { return l_.keep == TileKeep::kRegisters || l_.n_columns > 0; }
  static std::string guard(const std::string& condition) {
    return condition.empty() ? "" : cat("if ", condition, " ");
  }
  bool is_kept(uint16_t v) const {
    return std::find(phases_.kept.begin(), phases_.kept.end(), v) != phases_.kept.end();
  }

  // Chunks of each value that is summed, written and read in turns.
  void open_room(const TilePhase& phase) {
    const int chunk = l_.vector * threads_;
    int64_t at = 0;
    for (const uint16_t v : phase.reduced) {
      const std::string_view type = tile_value_type(w_.at(v).dtype);
      w_.line(type, "* const s", v, " = reinterpret_cast<", type,
              "*>(reinterpret_cast<char*>(room) + ", at, ");");
      at += int64_t{l_.chunks_at_once()} * chunk * (type == "float" ? 4 : 8);
    }
    w_.line("int turn = 0;");
  }

  void body(const TilePhase& phase) {
    const bool by_registers = l_.keep == TileKeep::kRegisters;
    w_.line("const auto body = [&](auto width, ", has_steps() ? "int" : "Index", " t) {");
    w_.open();
    w_.line("constexpr int U = decltype(width)::value;");
    const bool is_ahead = l_.is_ahead && &phase == &phases_.phases.front();
    is_ahead ? take_ahead(phase) : w_.loads(phase.body, guard(there()));
    w_.open_stores(phase.stores);
    w_.line("#pragma unroll");
    w_.line("for (int u = 0; u < U; ++u) {");
    w_.open();
    w_.line("const Index c = ", w_.element(), ";");
    for (const uint16_t v : phase.read)
      w_.line("const ", tile_value_type(w_.at(v).dtype), " v", v, " = k", v, "[t + u];");
    for (const uint16_t v : phase.body) {
      w_.value(v);
      if (by_registers && is_kept(v)) w_.line("k", v, "[t + u] = v", v, ";");
    }
    for (const uint16_t v : phase.reduced) {
      const uint16_t from = w_.at(v).src[0];
      if (l_.is_block())
        w_.line("s", v, "[(turn * ", l_.vector, " + u) * ", threads_, " + lane] = v", from, ";");
      else if (is_long(v))
        w_.line(guard(there()), "r", v, ".add(v", from, ");");
      else
        w_.line(guard(there()), "r", v, " = ", combiner(w_.at(v).op), "::of(r", v, ", v", from,
                ");");
    }
    for (const uint16_t v : phase.sums)
      w_.line(guard(there()), "c", v, "[t + u] += v", w_.at(v).src[0], ";");
    w_.count_sums(phase.sums);
    std::string counted = there();
    if (l_.is_across) counted = counted.empty() ? "(is_there)" : cat("(is_there && ", counted, ")");
    w_.count(counted, "(lane == 0)", phase.reduced);
    w_.fill_stores(phase.stores);
    w_.close();
    w_.line("}");
    std::string stored = there();
    if (l_.is_across) stored = stored.empty() ? "(is_there)" : cat("(is_there && ", stored, ")");
    w_.write_stores(phase.stores, guard(stored));
    if (is_ahead) w_.line("fetch(row + n_blocks);");
    if (sums_apart(phase)) sum_chunk(phase);
    w_.close();
    w_.line("};");
  }

  // A warp a reduction, so that several go on at once; the others make the next chunk meanwhile.
  void sum_chunk(const TilePhase& phase) {
    w_.line("__syncthreads();");
    const bool is_whole = has_steps() && l_.is_whole;
    if (!is_whole) {
      w_.line("const Index left = row_len - static_cast<Index>(t) * ", threads_, ";");
      w_.line("const int n = left < U * ", threads_, " ? static_cast<int>(left) : U * ", threads_,
              ";");
    }
    int q = 0;
    for (const uint16_t v : phase.reduced)
      w_.line("if (", sums_here(q++), ") chain<", combiner(w_.at(v).op),
              is_whole ? cat(", U * ", threads_) : "", ">(r", v, ", s", v, " + turn * ",
              l_.vector * threads_, is_whole ? "" : ", n", ", thread % 32);");
    w_.line("turn ^= 1;");
  }
  std::string sums_here(int q) const {
    return cat("warp == ", q % (threads_ / 32), " && thread % 32 < 16");
  }

  void walk() {
    const int n = l_.vector;
    if (has_steps()) {
      const int steps = l_.row_steps, whole = steps / n * n;
      if (whole > 0) {
        w_.line("#pragma unroll");
        w_.line("for (int t = 0; t < ", whole, "; t += ", n, ") body(Width<", n, ">{}, t);");
      }
      if (steps > whole) w_.line("body(Width<", steps - whole, ">{}, ", whole, ");");
    } else if (l_.is_block()) {
      w_.line("for (Index t = 0; t * ", threads_, " < row_len; t += ", n, ") body(Width<", n,
              ">{}, t);");
    } else {
      w_.line("const Index mine = (row_len - lane + 15) / 16;  // steps of this lane");
      w_.line("Index t = 0;");
      if (n > 1) w_.line("for (; t + ", n, " <= mine; t += ", n, ") body(Width<", n, ">{}, t);");
      w_.line("for (; t < mine; ++t) body(Width<1>{}, t);");
    }
  }

  void join(const TilePhase& phase) {
    if (sums_apart(phase)) return join_block(phase);
    for (const uint16_t v : phase.reduced) {
      const std::string_view c = combiner(w_.at(v).op);
      const std::string all = l_.is_across ? cat("joined_across<", c, ", ", l_.rows_per_block,
                                                 ">(room, ", summed(v), ")")
                                           : cat("joined<", c, ">(group, ", summed(v), ")");
      w_.line("const ", tile_value_type(w_.at(v).dtype), " v", v, " = ", tile_dtype(w_.at(v).dtype),
              "::round(", all, ");");
    }
  }
  void join_block(const TilePhase& phase) {
    int q = 0;
    for (const uint16_t v : phase.reduced) {
      const std::string_view type = tile_value_type(w_.at(v).dtype);
      w_.line("if (", sums_here(q++), ") {");
      w_.line("  const ", type, " all = joined<", combiner(w_.at(v).op), ">(0xffffu, ", summed(v),
              ");");
      w_.line("  if (thread % 32 == 0) *reinterpret_cast<", type, "*>(sums + ", n_joined_ + q - 1,
              ") = ", tile_dtype(w_.at(v).dtype), "::round(all);");
      w_.line("}");
    }
    w_.line("__syncthreads();");
    for (const uint16_t v : phase.reduced) {
      const std::string_view type = tile_value_type(w_.at(v).dtype);
      w_.line("const ", type, " v", v, " = *reinterpret_cast<const ", type, "*>(sums + ",
              n_joined_++, ");");
    }
  }

  // By one thread of a row, after all have read what may lie there.
  void store_rows() {
    if (phases_.row_stores.empty()) return;
    const bool is_warp = !l_.is_block() && !l_.is_across;
    w_.line(is_warp ? "__syncwarp(group);" : "__syncthreads();");
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
  const int threads_;  // of a row
  int n_joined_ = 0;
};

}  // namespace

void write_rows(TileWriter& w, const TilePhases& phases) { Rows(w, phases).run(); }

}  // namespace tegula::cuda
