// The works of `tegula bench`: attention, a product, a step or a token, as functions.
#include <numeric>

#include "cli/bench.h"
#include "cli/command.h"
#include "tegula/base/algorithm.h"
#include "tegula/base/amounts.h"
#include "tegula/base/text.h"
#include "tegula/models/model.h"
#include "tegula/ops/common/attention_call.h"
#include "tegula/ops/dot_i8.h"
#include "tegula/ops/dot_quantised.h"
#include "tegula/ops/math.h"
#include "tegula/ops/table.h"
#include "tegula/train/step.h"

namespace tegula::cli {

Result<std::vector<int64_t>> shape_numbers(const std::string& text, size_t n, const char* names) {
  std::vector<int64_t> out;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const auto size = read_count(text.substr(at, end - at), 1, kMany);
    if (!size.ok())
      return invalid_argument(
          cat("--shape: '", text, "' must be ", names, ", whole numbers from 1"));
    out.push_back(*size);
    at = end + 1;
  }
  if (out.size() != n)
    return invalid_argument(
        cat("--shape: '", text, "' has ", out.size(), " numbers, must be ", names));
  return out;
}

// Each flag takes names of its own list only: what is no type's is gemm's int8.
DType dtype_of(const BenchOptions& o) { return parse_dtype(o.dtype).value_or(DType::kI8); }

namespace {

using Options = BenchOptions;
using Work = BenchWork;

// The features of --with and the operands that they need, for queries [b, h, n].
struct Features {
  AttentionOptions options;
  std::vector<int64_t> cu_q, cu_k;  // where packed sequences begin; empty: one
  bool is_strided = false;          // heads before tokens in memory
};
Result<Features> features_of(const Options& o, Builder& b, const std::vector<int64_t>& s,
                             int64_t keys) {
  Features f;
  for (std::string_view rest = o.with; !rest.empty();) {
    const std::string_view name = take_until(',', rest);
    if (name == "softcap") {
      f.options.softcap = 30;
    } else if (name == "alibi") {
      f.options.alibi = b.param("alibi", {DType::kF32, {s[1]}});
    } else if (name == "bias") {
      f.options.bias = b.param("bias", {DType::kF32, {s[0], s[1], s[2], keys}});
    } else if (name == "bias-of-keys") {
      f.options.bias = b.param("bias", {DType::kF32, {s[0], 1, 1, keys}});
    } else if (name == "dropout") {
      f.options.dropout = 0.1, f.options.seed = b.param("seed", {DType::kI64, {}});
    } else if (name == "varlen") {  // two sequences of one row of the batch
      if (s[0] != 1) return invalid_argument("--with varlen: packed sequences need B = 1");
      f.cu_q = {0, s[2] / 2, s[2]}, f.cu_k = {0, keys / 2, keys};
      f.options.cu_seqlens_q = constant_ints(b, f.cu_q, DType::kI32);
      f.options.cu_seqlens_k = constant_ints(b, f.cu_k, DType::kI32);
    } else if (name == "strided") {
      f.is_strided = true;
    } else {
      return invalid_argument(cat("--with: '", name, "' is none of softcap, alibi, bias, ",
                                  "bias-of-keys, dropout, varlen, strided"));
    }
  }
  return f;
}

// Pairs of a query and a key of one head: half of a causal square, as people count it; else those
// that are visible.
double counted_pairs(const Work& w, const Features& f) {
  const Function& function = (*w.module)[w.function];
  const auto n = std::find_if(function.nodes.begin(), function.nodes.end(),
                              [](const Node& node) { return node.op == &attention_op; });
  const auto in = function.input_types(*n), out = function.output_types(*n);
  const AttentionCall call({n->op, &n->attrs, in, out, w.module.get(), n->regions}, false);
  if (f.options.is_causal && f.options.window_left < 0 && f.cu_q.empty() && call.sq == call.sk)
    return 0.5 * static_cast<double>(call.sq) * static_cast<double>(call.sk);
  const AttentionMask mask(call, f.cu_q, f.cu_k);
  int64_t pairs = 0;
  for (int64_t i = 0; i < call.sq; ++i) pairs += mask.keys(0, i).hi - mask.keys(0, i).lo;
  return static_cast<double>(pairs);
}

Result<Work> attention_work(const Options& o, bool decode) {
  const auto s = TEGULA_TRY(shape_numbers(o.shape, 4, decode ? "B,H,KEYS,D" : "B,H,N,D"));
  const DType t = dtype_of(o);
  const int64_t b = s[0], h = s[1], d = s[3], n = decode ? 1 : s[2];
  const int64_t keys = decode ? s[2] : o.seqlen_k > 0 ? o.seqlen_k : n;
  const int64_t kv = o.kv_heads > 0 ? o.kv_heads : h;
  Work w;
  Builder build(*w.module, "attention");
  Features features = TEGULA_TRY(features_of(o, build, {b, h, n}, keys));
  AttentionOptions& options = features.options;
  const auto operand = [&](const char* name, int64_t rows, int64_t heads,
                           const std::string& dtype = "") {
    const DType of = dtype.empty() ? t : parse_dtype(dtype).value_or(t);
    if (!features.is_strided) return build.param(name, {of, {b, rows, heads, d}});
    return transpose(build.param(name, {of, {b, heads, rows, d}}), 1, 2);
  };
  const Var q = operand("q", n, h), k = operand("k", keys, kv, o.cache_dtype),
            v = operand("v", keys, kv, o.cache_dtype);
  options.is_causal = o.is_causal && !decode;
  options.window_left = o.window;
  const bool fwd = o.pass != "bwd", bwd = o.pass != "fwd" && !decode;
  const Attention a = attention(q, k, v, options);
  if (fwd) build.result("o", a.o), build.result("lse", a.lse);
  if (bwd && !build.failed()) {
    Attrs attrs = build.function().nodes.back().attrs;
    const Var d_o = operand("do", n, h);
    const Var out = fwd ? a.o : operand("o", n, h);
    const Var lse = fwd ? a.lse : build.param("lse", {DType::kF32, {b, h, n}});
    std::vector<Var> in = {q, k, v, out, lse, d_o};
    for (const Var& x :
         {options.bias, options.alibi, options.cu_seqlens_q, options.cu_seqlens_k, options.seed})
      if (x.valid()) in.push_back(x);
    const auto g = build.emit_n(attention_bwd_op, std::move(attrs), in);
    if (options.bias.valid()) build.result("dbias", g[3]);
    build.result("dq", g[0]), build.result("dk", g[1]), build.result("dv", g[2]);
  }
  w.function = TEGULA_TRY(build.finish_into_module());
  const double pairs = static_cast<double>(b * h) * counted_pairs(w, features);
  w.flops = 4 * pairs * static_cast<double>(d) * ((fwd ? 1 : 0) + (bwd ? 2.5 : 0));
  w.op = bwd && !fwd ? "attention_bwd" : "attention";
  w.what = cat(decode ? "decode " : "attention ", o.shape, options.is_causal ? " causal" : "");
  if (o.kv_heads > 0) w.what += cat(" kv-heads ", kv);
  if (o.seqlen_k > 0) w.what += cat(" seqlen-k ", keys);
  if (o.window >= 0) w.what += cat(" window ", o.window);
  w.what +=
      cat(o.with.empty() ? "" : " ", o.with, " ", o.dtype, decode ? "" : " ", decode ? "" : o.pass);
  if (!o.cache_dtype.empty()) w.what += cat(", cache ", o.cache_dtype);
  return w;
}

Result<Var> with_epilogue(const Options& o, Builder& b, Var y) {
  for (std::string_view rest = o.epilogue; !rest.empty();) {
    const std::string_view name = take_until(',', rest);
    if (name != "scale" && name != "bias" && name != "gelu")
      return invalid_argument(
          cat("bench gemm: --epilogue has \"", name, "\", not scale, bias or gelu"));
    y = name == "scale"  ? y * 0.125
        : name == "bias" ? y + b.param("bias", {y.dtype(), {y.dim(1)}})
                         : gelu(y);
  }
  return y;
}

Result<Work> gemm_work(const Options& o) {
  const auto s = TEGULA_TRY(shape_numbers(o.shape, 3, "M,N,K"));
  const bool is_int8 = o.dtype == "int8";
  const DType t = dtype_of(o);
  Work w;
  Builder b(*w.module, "gemm");
  w.op = "dot";
  if (o.weights == "as the operands" && !is_int8) {
    const Var x = o.is_along_m ? transpose(b.param("a", {t, {s[2], s[0]}}), 0, 1)
                               : b.param("a", {t, {s[0], s[2]}});
    const Var y = o.is_along_k ? transpose(b.param("b", {t, {s[1], s[2]}}), 0, 1)
                               : b.param("b", {t, {s[2], s[1]}});
    b.result("c", TEGULA_TRY(with_epilogue(o, b, matmul(x, y))));
  } else if (!o.epilogue.empty()) {
    return invalid_argument("bench gemm: --epilogue goes with floats as both operands");
  } else {  // a scale for 128 of k, or (as the operands) for a whole column
    const bool four = o.weights == "int4";
    const int64_t groups = o.weights == "as the operands" ? 1 : std::max<int64_t>(1, s[2] / 128);
    const Var x = b.param("a", {is_int8 ? t : DType::kF32, {s[0], s[2]}});
    const Var q = b.param("b", {four ? DType::kU8 : DType::kI8, {four ? s[2] / 2 : s[2], s[1]}});
    const Var scale = b.param("scale", {DType::kF32, {groups, s[1]}});
    w.op = is_int8 ? "dot_i8" : "dot_quantised";
    b.result("c", is_int8 ? dot_i8(x, b.param("sx", {DType::kF32, {s[0]}}), q, scale, four ? 4 : 8)
                          : dot_quantised(x, q, scale, four ? 4 : 8));
  }
  w.function = TEGULA_TRY(b.finish_into_module());
  w.flops = 2.0 * static_cast<double>(s[0]) * static_cast<double>(s[1]) * static_cast<double>(s[2]);
  w.what = cat("gemm ", o.shape, " ", o.dtype);
  if (o.weights != "as the operands") w.what += cat(" weights ", o.weights);
  if (!o.epilogue.empty()) w.what += cat(" ", o.epilogue);
  return w;
}

Result<Work> train_work(const Options& o, CompileOptions& compile) {
  TrainConfig c = TEGULA_TRY(o.train.resolve());
  c.rule_set = TEGULA_TRY(read_rules(c.rules));
  c.model.vocab_size = o.vocab_size;
  TEGULA_TRY(c.model.resolve());
  auto f = TEGULA_TRY(build_step_functions(c));
  compile = compile_options(c, Target(compile.plan.target));
  Work w;
  w.module = f.module;
  w.function = c.accumulate > 1 ? f.micro_step : f.train_step;
  w.tokens = static_cast<double>(c.batch * c.row_length());
  w.integers_below = c.model.vocab_size;
  w.weights = f.weights;
  w.what = cat("a step of ", c.model.type, ", ", parameter_count(f.weights), " parameters");
  return w;
}

// A token of each of --texts texts, at the end of their contexts.
Result<Work> generate_work(const Options& o, CompileOptions& compile) {
  TrainConfig c = TEGULA_TRY(o.generate.resolve());
  c.model.vocab_size = o.vocab_size;
  TEGULA_TRY(c.model.resolve());
  Work w;
  const ModelDef* model = TEGULA_TRY(find_model(c.model.type));
  Builder b(*w.module, "decode");
  Context context(b, c.model);
  context.dtype = c.dtype == "bf16" ? DType::kBF16 : DType::kF32;
  Decoding d;
  const int64_t n = o.texts;
  d.pages.count = n * ((c.model.max_seqlen + d.pages.size - 1) / d.pages.size);
  std::vector<int64_t> pages(static_cast<size_t>(d.pages.count));
  std::iota(pages.begin(), pages.end(), 0);
  d.positions = b.param("positions", {DType::kI64, {n, 1}});
  d.slots = b.param("slots", {DType::kI32, {n}});
  d.seqlens_k = b.param("seqlens_k", {DType::kI32, {n}});
  d.block_table = b.param("block_table", {DType::kI32, {n, d.pages.count / n}});
  w.given = {{"seqlens_k", std::vector<int64_t>(static_cast<size_t>(n), c.row_length())},
             {"block_table", pages}};
  context.decoding = &d;
  const Var tokens = b.param("tokens", {DType::kI32, {n, 1}});
  b.result("logits", model_last_logits(context, *model, tokens));
  w.function = TEGULA_TRY(b.finish_into_module());
  compile.superopt_seconds = c.superopt, compile.rules = TEGULA_TRY(read_rules(c.rules));
  compile.passes.pass.is_inference = true;
  compile.passes.pass.mode = c.mode == "exact" ? Mode::kExact : Mode::kFast;
  w.tokens = static_cast<double>(n);
  w.integers_below = c.model.vocab_size;
  w.what = cat("a token of ", c.model.type, " after ", c.row_length() - 1, " others, ", c.dtype);
  if (n > 1) w.what += cat(", of ", n, " texts");
  return w;
}

}  // namespace

Result<BenchWork> bench_work(std::string_view kind, const BenchOptions& o,
                             CompileOptions& compile) {
  return kind == "gemm"       ? gemm_work(o)
         : kind == "train"    ? train_work(o, compile)
         : kind == "generate" ? generate_work(o, compile)
                              : attention_work(o, kind == "decode");
}

}  // namespace tegula::cli
