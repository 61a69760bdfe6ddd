#include "tegula/kernels/cuda/persistent_text.h"

#include <algorithm>

#include "tegula/base/round.h"
#include "tegula/base/str.h"
#include "tegula/kernels/cuda/tile_end_text.h"
#include "tegula/kernels/cuda/tile_prologue_text.h"
#include "tegula/kernels/cuda/tile_writer.h"

namespace tegula::cuda {

std::string PersistentFunction::key() const {
  std::string s = cat("kind ", int{kind}, " products ", n_products, " calls ", n_calls, " out16 ",
                      int{is_out16}, "\n");
  if (first.is_there()) s += "first " + first.key();
  if (last.is_there()) s += "last " + last.key();
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
    if (has(PersistentFunction::kAttention))
      line("#include \"tegula/kernels/cuda/attention_decode.cuh\"");
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

  // What this block does of a step.
  void function(const PersistentFunction& f, size_t i) {
    if (f.kind == PersistentFunction::kProducts) return products(f, i);
    const bool is_attention = f.kind == PersistentFunction::kAttention;
    const std::string type = f.kind == PersistentFunction::kElements  ? cat("first", i, "::Params")
                             : f.kind == PersistentFunction::kPutRows ? "RowsParams"
                                                                      : "IndexParams";
    line("struct Params", i, " {");
    line(is_attention ? std::string("  AttentionDecodeParams call;\n  int n_heads, n_batch;")
                      : cat("  PersistentCalls calls;\n  ", type, " of[", f.n_calls, "];"));
    line("};");
    line("__device__ __forceinline__ void do", i, "(const PersistentStep& step, const Params", i,
         "& p, Shared& s, Place&) {");
    if (is_attention) {
      line("  each_task<false>(step, [&](int task) {");
      line("    const int rest = task / p.call.n_splits;");
      line("    attend<false>(p.call, {task - rest * p.call.n_splits, rest % p.n_heads, ",
           "rest / p.n_heads, p.n_heads, p.n_batch}, s.scratch);");
      line("    __syncthreads();");
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
    line("__device__ __forceinline__ void do", i, "(const PersistentStep&, const Params", i,
         "& p, Shared& s, Place& at) {");
    if (f.first.is_there()) {
      line("  const u16* const a = static_cast<const u16*>(first", i,
           "::prologue(p.first, reinterpret_cast<float4*>(s.scratch)));");
      line("  __syncthreads();  // an elementwise program's results are there");
    } else {
      line("  const u16* const a = load_rows(p.a, p.lda, p.of[0].k, s);");
    }
    line("  const auto end = [&](const PersistentProduct& of, int m, int n, const auto* given) {");
    if (f.last.is_there())
      line("    last", i, "::element(p.last, static_cast<last", i,
           "::Index>(m * of.n + n), given);");
    line("  };");
    line("  multiply<", f.is_out16 ? "true" : "false", ", ", f.n_calls, ", ",
         f.last.is_there() ? "true" : "false", ", ", f.n_products, ">(p.of, a, s, at, end);");
    line("}\n");
  }

  void kernel() {
    line("using namespace tegula::cuda;\n");
    line("extern \"C\" __global__ void __launch_bounds__(persistent::kThreads, 1)");
    line("    ", kPersistentEntry, "(const __grid_constant__ PersistentParams p) {");
    line("  extern __shared__ __align__(1024) char smem[];");
    line("  persistent::Shared& s = *reinterpret_cast<persistent::Shared*>(smem);");
    line("  persistent::run(p, s, [&](const PersistentStep& step, const char* params,");
    line("                            persistent::Place& at) {");
    line("    switch (step.function) {");
    for (size_t i = 0; i < functions_.size(); ++i)
      line("      case ", i, ": return persistent::do", i,
           "(step, *reinterpret_cast<const persistent::Params", i, "*>(params), s, at);");
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
