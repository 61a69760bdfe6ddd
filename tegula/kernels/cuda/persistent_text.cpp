#include "tegula/kernels/cuda/persistent_text.h"

#include <bit>

#include "tegula/base/algorithm.h"
#include "tegula/base/round.h"
#include "tegula/base/str.h"
#include "tegula/kernels/cuda/tile_end_text.h"
#include "tegula/kernels/cuda/tile_prologue_text.h"
#include "tegula/kernels/cuda/tile_writer.h"

namespace tegula::cuda {

namespace {

// As members of a struct.
std::string rows_constants(const RowsParams& rows) {
  return cat("  static constexpr long long x_step = ", rows.x_step, ", y_step = ", rows.y_step,
             ";\n  static constexpr int n = ", rows.n, ", n_ids = ", rows.n_ids,
             ", bytes = ", rows.bytes, ";\n");
}

// As statements; of a struct `call`.
std::string attention_constants(const PersistentFunction& f) {
  std::string s;
  const AttentionDecodeParams& a = f.attention;
  const auto set = [&](const char* name, int64_t x) { s += cat("  ", name, " = ", x, ";\n"); };
  const auto tensor = [&](const char* name, const AttentionTensor& t) {
    s += cat("  call.", name, " = {p.", name, ", ", t.batch, ", ", t.row, ", ", t.head, "};\n");
  };
  tensor("q", a.q), tensor("k", a.k), tensor("v", a.v), tensor("o", a.o);
  set("call.seqlen_q", a.seqlen_q), set("call.seqlen_k", a.seqlen_k);
  set("call.n_heads_q", a.n_heads_q), set("call.n_heads_kv", a.n_heads_kv);
  set("call.group", a.group), set("call.head_dim", a.head_dim), set("call.n_tiles", a.n_tiles);
  set("call.group_inverse", a.group_inverse);
  set("call.keys_per_split", a.keys_per_split), set("call.n_splits", a.n_splits);
  set("call.n_slots", a.n_slots), set("call.pages_per_sequence", a.pages_per_sequence);
  set("call.page_size", a.page_size), set("call.page_log2", a.page_log2);
  set("call.last_page", a.last_page), set("call.window_left", a.window_left);
  set("call.is_causal", a.is_causal), set("call.keeps_kv", a.keeps_kv);
  set("call.is_settled", a.is_settled);
  s += cat("  call.scale_log2 = __uint_as_float(", std::bit_cast<uint32_t>(a.scale_log2), "u);\n");
  s += cat("  constexpr int n_heads = ", f.n_heads, ", n_batch = ", f.n_batch, ";\n");
  s += cat("  constexpr AttentionLookUp look = static_cast<AttentionLookUp>(", int{f.look}, ");\n");
  return s;
}

}  // namespace

std::string PersistentFunction::key() const {
  std::string s = cat("kind ", int{kind}, " products ", n_products, " calls ", n_calls, " k ", k,
                      " out16 ", int{is_out16}, "\n");
  if (first.is_there()) s += "first " + first.key();
  if (last.is_there()) s += "last " + last.key();
  if (kind == kAttention) s += attention_constants(*this);
  if (kind == kPutRows) s += rows_constants(rows);
  return s;
}

std::optional<TileCall> as_warps(const TileCall& call, std::span<const uint64_t> params) {
  TileCall warps = call;
  TileLayout& l = warps.layout;
  if (l.n_columns > 0 || l.is_across || l.is_block()) return {};
  const char* const counted = l.is_rows ? "n_rows" : "n";
  size_t at = 0;
  while (at < call.params.size() && call.params[at].name != counted) ++at;
  if (at == call.params.size()) return {};
  if (l.is_rows) l.rows_per_block = 32 / l.threads_per_row;
  const int64_t of_task = l.is_rows ? l.rows_per_block : 32 * l.vector;
  l.n_threads = 32;
  warps.n_blocks = ceil_div(static_cast<int64_t>(params[at]), of_task);
  return warps;
}

namespace {

class Writer {
 public:
  explicit Writer(const std::vector<PersistentFunction>& functions) : functions_(functions) {}

  std::string run() {
    line("#include \"tegula/kernels/cuda/persistent.cuh\"");
    if (has(PersistentFunction::kAttention)) {
      line("#include \"tegula/kernels/cuda/attention_decode.cuh\"");
      line("namespace tegula::cuda::persistent {");
      line("// Behind what products use of it.");
      line("constexpr int kKeptAt = sizeof(cuda::Shared) < kScratchBytes ? kScratchBytes : ",
           "sizeof(cuda::Shared);");
      line("static_assert(kKeptAt + sizeof(Kept) <= kAttentionBytes);");
      line("}  // namespace tegula::cuda::persistent");
    }
    if (has(PersistentFunction::kPutRows)) line("#include \"tegula/kernels/cuda/put_row.cuh\"");
    if (has(PersistentFunction::kPut)) line("#include \"tegula/kernels/cuda/put.cuh\"");
    for (size_t i = 0; i < functions_.size(); ++i) programs(functions_[i], i);
    line("namespace tegula::cuda::persistent {\n");
    for (size_t i = 0; i < functions_.size(); ++i) function(functions_[i], i);
    line("}  // namespace tegula::cuda::persistent\n");
    kernel();
    return std::move(text_);
  }

 private:
  template <class... Args>
  void line(const Args&... args) {
    text_ += cat(args..., "\n");
  }
  bool has(PersistentFunction::Kind kind) const {
    return std::any_of(functions_.begin(), functions_.end(),
                       [&](const PersistentFunction& f) { return f.kind == kind; });
  }

  void programs(const PersistentFunction& f, size_t i) {
    const std::string first = cat("tegula::cuda::first", i), last = cat("tegula::cuda::last", i);
    if (f.kind == PersistentFunction::kElements) {
      TileWriter w(*f.first.program, f.first.call);
      w.head(first.c_str());
      write_program(w);
      w.close();
      w.line("}\n");
      w.line("}  // namespace ", first, "\n");
      text_ += w.text();
    } else if (f.first.is_there()) {
      text_ += tile_prologue_text(*f.first.program, f.first.call, f.first.out, f.first.wanted,
                                  first.c_str());
    }
    if (f.last.is_there())
      text_ += tile_end_text(*f.last.program, f.last.call, f.last.of, last.c_str());
  }

  // The work of this block of a step.
  void function(const PersistentFunction& f, size_t i) {
    if (f.kind == PersistentFunction::kProducts) return products(f, i);
    const bool is_attention = f.kind == PersistentFunction::kAttention;
    const std::string type = f.kind == PersistentFunction::kElements  ? cat("first", i, "::Params")
                             : f.kind == PersistentFunction::kPutRows ? cat("Rows", i)
                                                                      : "IndexParams";
    if (f.kind == PersistentFunction::kPutRows)
      line("struct Rows", i, " {\n  char* x;\n  const char* y;\n  const int* ids;\n",
           rows_constants(f.rows), "};");
    if (is_attention)
      line("using Params", i, " = AttentionPointers;");
    else
      line("struct Params", i, " {\n  PersistentCalls calls;\n  ", type, " of[", f.n_calls,
           "];\n};");
    line("template <class Wait>");
    line("__device__ __forceinline__ void do", i, "(const PersistentStep& step, const Params", i,
         "& p, Shared& s, Wait wait) {");
    line("  wait();");
    if (is_attention) {
      line("  AttentionDecodeParams call;");
      line("  call.lse = p.lse, call.partial = p.partial, call.counters = p.counters;");
      line("  call.seqlens_k = p.seqlens_k, call.pages = p.pages;");
      text_ += attention_constants(f);
      line("  each_task<false>(step, [&](int task) {");
      line("    const int rest = task / call.n_splits;");
      line("    attend<false>(call, {task - rest * call.n_splits, rest % n_heads, rest / n_heads, ",
           "n_heads, n_batch}, s.scratch,");
      line("                  reinterpret_cast<Kept*>(s.scratch + kKeptAt), look);");
      if (f.look == kLookUp) line("    __syncthreads();");  // else a block has one task
    } else {
      line("  each_task<true>(step, [&](int task) {");
      line("    const int call = call_of<", f.n_calls, ">(p.calls, task);");
      line("    const int block = task - p.calls.first[call];");
      if (f.kind == PersistentFunction::kElements)
        line("    first", i, "::run(p.of[call], block, step.n_tasks);");
      else if (f.kind == PersistentFunction::kPutRows)
        line("    put_row(p.of[call], block, threadIdx.x % 32);");
      else
        line("    put_slice<32>(p.of[call], block, threadIdx.x % 32);");
    }
    line("  });");
    line("}\n");
  }

  void products(const PersistentFunction& f, size_t i) {
    line("struct Params", i, " {");
    line(f.first.is_there() ? cat("  first", i, "::Prologue first;")
                            : "  const void* a;\n  long long lda;");
    line("  PersistentProduct of[", f.n_products, "];");
    if (f.last.is_there()) line("  last", i, "::End last;");
    line("};");
    line("template <class Wait>");
    line("__device__ __forceinline__ void do", i, "(const PersistentStep& step, const Params", i,
         "& p, Shared& s, Wait wait) {");
    line("  const auto read = [&] {");
    line("    wait();");
    if (f.first.is_there()) {
      line("    const void* const a = first", i,
           "::prologue(p.first, reinterpret_cast<float4*>(s.scratch));");
      line("    return static_cast<const u16*>(a);");
    } else {
      line("    return load_rows<", f.k, ">(p.a, p.lda, s);");
    }
    line("  };");
    line("  const auto end = [&](const PersistentProduct& of, int m, int n, const auto* given) {");
    if (f.last.is_there())
      line("    last", i, "::element(p.last, static_cast<last", i,
           "::Index>(m * of.n + n), given);");
    line("  };");
    line("  multiply<", f.is_out16 ? "true" : "false", ", ", f.n_calls, ", ",
         f.last.is_there() ? "true" : "false", ", ", f.n_products, ", ", f.k,
         ">(step, p.of, s, read, end);");
    line("}\n");
  }

  void kernel() {
    line("using namespace tegula::cuda;\n");
    line("extern \"C\" __global__ void __launch_bounds__(persistent::kThreads, 1)");
    line("    ", kPersistentEntry, "(const __grid_constant__ PersistentParams p) {");
    line("  extern __shared__ __align__(1024) char smem[];");
    line("  persistent::Shared& s = *reinterpret_cast<persistent::Shared*>(smem);");
    line(
        "  persistent::run(p, s, [&](const PersistentStep& step, const char* params, auto wait) {");
    line("    switch (step.function) {");
    for (size_t i = 0; i < functions_.size(); ++i)
      line("      case ", i, ": return persistent::do", i,
           "(step, *reinterpret_cast<const persistent::Params", i, "*>(params), s, wait);");
    line("    }");
    line("  });");
    line("}");
  }

  const std::vector<PersistentFunction>& functions_;
  std::string text_;
};

}  // namespace

std::string persistent_text(const std::vector<PersistentFunction>& functions) {
  return Writer(functions).run();
}

}  // namespace tegula::cuda
