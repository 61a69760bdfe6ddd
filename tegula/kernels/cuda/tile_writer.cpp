#include "tegula/kernels/cuda/tile_writer.h"

#include <bit>
#include <cmath>

#include "tegula/base/algorithm.h"
#include "tegula/kernels/cuda/count.h"

namespace tegula::cuda {

using tile::Class;
using tile::class_of;
using tile::Extent;
using tile::Instr;
using tile::Kind;
using tile::kNoValue;
using tile::Op;
using tile::op_info;

std::string_view tile_value_type(DType t) {
  switch (class_of(t)) {
    case Class::kF32:
      return "float";
    case Class::kF64:
      return "double";
    case Class::kI64:
      return "i64";
  }
  return "";
}

TileWriter::TileWriter(const tile::Program& p, const TileCall& call)
    : p_(p), call_(call), extent_(tile::extents_of(p)), was_counted_(p.code.size()) {
  const std::string lane = layout().is_columns ? "first" : "lane";
  once_ = layout().n_columns > 0 ? cat("(row == 0 && ", lane, " == 0)")
                                 : cat("(block == 0 && ", thread(), " == 0)");
}

void TileWriter::count(const std::string& of_element, const std::string& of_row,
                       const std::vector<uint16_t>& reduced) {
  if (!counts_flops()) return;
  for (const uint16_t v : reduced) add_flops(v, Extent::kFull);
  const auto write = [&](Extent of, const std::string& condition) {
    int& n = pending_[static_cast<int>(of)];
    if (n > 0)
      line(where_, condition.empty() ? "" : cat("if ", condition, " "), "count_flops(", n, ");");
    n = 0;
  };
  write(Extent::kFull, of_element), write(Extent::kRow, of_row);
  write(Extent::kUniform, once_);
}

void TileWriter::count_sums(const std::vector<uint16_t>& sums) {
  for (const uint16_t v : sums) {
    if (!was_counted_[v]) ++pending_[static_cast<int>(Extent::kFull)];
    was_counted_[v] = true;
  }
}

void TileWriter::add_flops(size_t v, Extent of) {
  if (!was_counted_[v]) pending_[static_cast<int>(of)] += tile::flops_of(at(v).op);
  was_counted_[v] = true;
}

std::string TileWriter::name_of(size_t k) const {
  const size_t n_in = p_.inputs.size();
  return k < n_in ? cat("in", k) : cat("out", k - n_in);
}

void TileWriter::params(const char* name_space, const char* name) {
  line("// Layout: ", layout().key());
  const std::string program = tile::to_text(p_);
  for (size_t at = 0; at < program.size();) {
    const size_t end = std::min(program.find('\n', at), program.size());
    line("// ", std::string_view(program).substr(at, end - at));
    at = end + 1;
  }
  line("#include \"tegula/kernels/cuda/joined.cuh\"");
  line("#include \"tegula/kernels/cuda/ptx/sync.cuh\"");
  line("#include \"tegula/kernels/cuda/tile_math.cuh\"\n");
  line("namespace ", name_space, " {\n");
  line("using namespace tile;");
  line("using Index = ", layout().is_wide ? "i64" : "int", ";  // of positions\n");
  line("struct ", name, " {");
  for (const TileParam& param : call_.params)
    if (param.is_constant)
      line("  static constexpr ", param.type, " ", param.name, " = ",
           static_cast<int64_t>(param.value), ";");
    else
      line("  ", param.type, " ", param.name, ";");
  line("};\n");
}

void TileWriter::head(const char* name_space, const char* name) {
  params(name_space, name);
  line("__device__ __forceinline__ void run(const ", name,
       "& p, const u32 block, const u32 n_blocks) {");
  open();
}

// The kernels: of one call, and of several whose blocks follow each other, where those may be one.
std::string TileWriter::finish() {
  close();
  line("}\n");
  // Sums of columns may take up to 128 registers a thread, or 64 where they are few: else the
  // compiler spills some of them, so that more blocks fit.
  const int n = layout().n_threads, threads = layout().is_ahead ? 1024 : 512;
  std::string blocks = layout().n_columns > 0 ? cat(", ", std::max(1, threads / n)) : "";
  // Coordinates of several dims would take more registers than three blocks leave.
  if (!layout().is_rows && layout().n_inner > 2) blocks = ", 3";
  const std::string head =
      cat("extern \"C\" __global__ void __launch_bounds__(", n, blocks, ")\n    ");
  line(head, kTileEntry, "(const __grid_constant__ Params p) {");
  line("  begin_early();");
  line("  run(p, blockIdx.x, gridDim.x);");
  line("}\n");
  if (layout().n_columns == 0) {
    line(head, kJoinedEntry, "(const __grid_constant__ Joined<Params> p) {");
    line("  begin_early();");
    line("  const JoinedBlock at = joined_block(p);");
    line("  run(p.of[at.call], at.block, at.n_blocks);");
    line("}\n");
  }
  return text_ + "}  // namespace tegula::cuda\n";
}

std::string TileWriter::arguments(const Instr& i) const {
  std::string s;
  for (int k = 0; k < op_info(i.op).n_src; ++k) append(s, cat(k ? ", v" : "v", i.src[k]));
  return s;
}

// Exact, and readable where that is short.
std::string TileWriter::constant(const Instr& i) const {
  const std::string_view type = tile_dtype(i.dtype);
  if (class_of(i.dtype) == Class::kI64)
    return cat(type, "::wrap(static_cast<i64>(", static_cast<uint64_t>(i.imm), "ull))");
  if (i.dtype == DType::kF64)
    return cat("as_double(", std::bit_cast<uint64_t>(i.value), "ull)  /* ", i.value, " */");
  const auto single = static_cast<float>(i.value);
  return cat(type, "::round(as_float(", std::bit_cast<uint32_t>(single), "u))  /* ", i.value,
             " */");
}

std::string TileWriter::generated(size_t v) const {
  const Instr& i = at(v);
  const std::string_view type = tile_dtype(i.dtype);
  const bool is_rows = layout().is_rows, is_full = extent_[v] == Extent::kFull;
  const std::string linear = is_rows ? "(row * p.row_len + c)" : "static_cast<i64>(i + u)";
  switch (i.op) {
    case Op::kConstant:
      return constant(i);
    case Op::kIndex:
      return cat(type, "::wrap(", i.imm ? "row" : linear, ")");
    case Op::kIota: {
      const std::string of = !is_full ? "row" : is_rows ? "static_cast<Index>(c)" : "(i + u)";
      const std::string word = is_full ? "static_cast<Index>" : "";
      return cat(type, "::wrap(static_cast<i64>(quotient(", of, ", ", word, "(p.iota", v,
                 "_weight)) % ", word, "(p.iota", v, "_extent)))");
    }
    default:
      break;
  }
  const auto stream = static_cast<uint64_t>(i.imm);
  if (i.src[1] != kNoValue)
    return cat("random_uniform(v", i.src[0], ", ", stream, "ull, static_cast<u64>(v", i.src[1],
               ") >> 2, static_cast<int>(v", i.src[1], " & 3))");
  if (is_rows || layout().vector % 4 != 0)
    return cat("random_uniform(v", i.src[0], ", ", stream, "ull, static_cast<u64>(", linear,
               ") >> 2, static_cast<int>(", linear, " & 3))");
  // Four neighbours share a block, which the compiler sees if the position's low bits are u's.
  return cat(
      "random_uniform(v", i.src[0], ", ", stream,
      "ull, (static_cast<u64>(i) >> 2) + (u >> 2), U == 1 ? static_cast<int>(i & 3) : u & 3)");
}

void TileWriter::value(size_t v) {
  const Instr& i = at(v);
  const tile::OpInfo& info = op_info(i.op);
  add_flops(v, extent_[v]);
  const std::string_view type = tile_dtype(i.dtype);
  std::string expression;
  if (i.op == Op::kLoad) {
    const auto k = static_cast<size_t>(i.imm);
    const TileAccess access = layout().access[k];
    const std::string from = access == TileAccess::kOne    ? cat("*p.in", k)
                             : access == TileAccess::kRow  ? cat("*in", k)
                             : access == TileAccess::kSame ? cat("a", v)
                                                           : cat("a", v, "[u]");
    expression = !is_vector(k) ? cat(type, "::widen(", from, ")")
                               : cat("Unpacked<", type, ">::of(a", v, ", u)");
  } else if (info.kind == Kind::kGenerator) {
    expression = generated(v);
  } else {
    expression = cat(info.name, "<", type, ">(", arguments(i), ")");
  }
  line("const ", tile_value_type(i.dtype), " v", v, " = ", expression, ";");
}

std::string TileWriter::element() const {
  return cat("static_cast<Index>(t + u) * ", layout().threads_per_row, " + lane");
}

void TileWriter::coordinates(const std::string& position) {
  const int n = layout().n_inner;
  if (n == 1) return line("const Index x0 = ", position, ";");
  line("Index rest", " = ", position, ";");
  for (int d = n - 1; d > 0; --d) {
    const std::string extent = cat("static_cast<Index>(p.inner", d, ")");
    line("const Index next", d, " = quotient(rest, ", extent, "), x", d, " = rest - next", d, " * ",
         extent, ";");
    line("rest = next", d, ";");
  }
  line("const Index x0 = rest;");
}

void TileWriter::find_row() {
  const int n_outer = layout().n_outer;
  if (n_outer > 0) line("i64 rest = row;");
  for (int d = n_outer - 1; d > 0; --d) {
    line("const i64 y", d, " = rest % p.outer", d, ";");
    line("rest /= p.outer", d, ";");
  }
  for (size_t k = 0; k < layout().access.size(); ++k) {
    if (layout().access[k] == TileAccess::kOne) continue;
    std::string at = cat("p.", name_of(k));
    for (int d = 0; d < n_outer; ++d)
      append(at, cat(" + ", d == 0 ? "rest" : cat("y", d), " * p.", name_of(k), "_outer", d));
    line("auto* const ", name_of(k), " = ", at, ";");
  }
}

std::string TileWriter::offset(size_t k, const std::string& along) const {
  const int last = layout().n_inner - 1;
  std::string s;
  for (int d = 0; d <= last; ++d) {
    const std::string x =
        d == last && !along.empty() ? cat("(x", d, " + ", along, ")") : cat("x", d);
    const bool is_one = d == last && layout().access[k] == TileAccess::kVector;
    if (d == last && layout().access[k] == TileAccess::kSame) break;
    if (!s.empty()) s += " + ";
    s += is_one ? x
                : cat(x, " * static_cast<Index>(p.", name_of(layout().strides_of(k)), "_inner", d,
                      ")");
  }
  return s.empty() ? "0" : s;
}

std::vector<uint16_t> TileWriter::single_loads(const std::vector<uint16_t>& body) const {
  std::vector<uint16_t> single;
  for (const uint16_t v : body) {
    if (at(v).op != Op::kLoad) continue;
    const auto k = static_cast<size_t>(at(v).imm);
    const TileAccess access = layout().access[k];
    if (access != TileAccess::kGiven && access != TileAccess::kSame && !is_vector(k))
      single.push_back(v);
  }
  return single;
}

void TileWriter::load_singles(const std::vector<uint16_t>& single, const char* name,
                              const std::string& guard) {
  if (single.empty()) return;
  const bool is_rows = layout().is_rows, is_flat = this->is_flat();
  line("#pragma unroll");
  line("for (int u = 0; u < U; ++u) {");
  open();
  if (!is_flat) coordinates("(" + element() + ")");
  for (const uint16_t v : single) {
    const auto k = static_cast<size_t>(at(v).imm);
    const std::string base = is_rows ? name_of(k) : cat("p.", name_of(k));
    line(guard, name, v, "[u] = ", base, "[", offset(k, is_flat ? "u" : ""), "];");
  }
  close();
  line("}");
}

void TileWriter::loads(const std::vector<uint16_t>& body, const std::string& guard) {
  const bool is_rows = layout().is_rows, is_flat = this->is_flat();
  for (const uint16_t v : body) {
    if (at(v).op != Op::kLoad) continue;
    const auto k = static_cast<size_t>(at(v).imm);
    const std::string storage = cat(tile_dtype(at(v).dtype), "::Storage");
    const std::string base = is_rows ? name_of(k) : cat("p.", name_of(k));
    const TileAccess access = layout().access[k];
    if (access == TileAccess::kGiven) {
      const std::string pack = cat("Pack<", storage, ", U>");
      line("const ", pack, " a", v, " = *reinterpret_cast<const ", pack, "*>(given", k, ");");
    } else if (access == TileAccess::kSame && (!is_flat || layout().n_inner == 1)) {
      line("const ", storage, " a", v, " = *", base, ";");
    } else if (access == TileAccess::kSame) {
      line("const ", storage, " a", v, " = ", base, "[", offset(k, ""), "];");
    } else if (is_vector(k)) {
      const std::string pack = cat("Pack<", storage, ", U>");
      line("const ", pack, " a", v, " = *reinterpret_cast<const ", pack, "*>(", base, " + ",
           offset(k, ""), ");");
    } else {
      line(storage, " a", v, "[U] = {};");
    }
  }
  load_singles(single_loads(body), "a", guard);
}

bool TileWriter::is_vector(size_t k) const {
  const TileAccess access = layout().access[k];
  return is_flat() && (access == TileAccess::kVector || access == TileAccess::kGiven);
}

void TileWriter::open_stores(const std::vector<uint16_t>& stores) {
  for (const uint16_t v : stores) {
    const std::string storage = cat(tile_dtype(at(v).dtype), "::Storage");
    is_vector(operand_of_store(v)) ? line("Pack<", storage, ", U> b", v, ";")
                                   : line(storage, " b", v, "[U];");
  }
}

void TileWriter::fill_stores(const std::vector<uint16_t>& stores) {
  for (const uint16_t v : stores)
    line("b", v, is_vector(operand_of_store(v)) ? ".v[u] = " : "[u] = ", tile_dtype(at(v).dtype),
         "::narrow(v", at(v).src[0], ");");
}

void TileWriter::write_stores(const std::vector<uint16_t>& stores, const std::string& guard) {
  const bool is_rows = layout().is_rows, is_flat = this->is_flat();
  std::vector<uint16_t> single;
  for (const uint16_t v : stores) {
    const size_t k = operand_of_store(v);
    if (!is_vector(k)) {
      single.push_back(v);
      continue;
    }
    const std::string pack = cat("Pack<", tile_dtype(at(v).dtype), "::Storage, U>");
    line("*reinterpret_cast<", pack, "*>(", is_rows ? "" : "p.", name_of(k), " + ", offset(k, ""),
         ") = b", v, ";");
  }
  if (single.empty()) return;
  line("#pragma unroll");
  line("for (int u = 0; u < U; ++u) {");
  open();
  if (!is_flat) coordinates("(" + element() + ")");
  for (const uint16_t v : single) {
    const size_t k = operand_of_store(v);
    line(guard, is_rows ? "" : "p.", name_of(k), "[", offset(k, is_flat ? "u" : ""), "] = b", v,
         "[u];");
  }
  close();
  line("}");
}

}  // namespace tegula::cuda
