// tegula bench: one kernel or one training step, timed beside the machine's own limit.
#include "cli/bench.h"

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "cli/by_op.h"
#include "cli/command.h"
#include "tegula/io/json.h"
#include "tegula/models/init.h"
#include "tegula/ops/attention.h"
#include "tegula/ops/dot_i8.h"
#include "tegula/ops/dot_quantised.h"
#include "tegula/ops/math.h"
#include "tegula/ops/table.h"
#include "tegula/runtime/compile.h"
#include "tegula/runtime/measure.h"
#include "tegula/serve/generator.h"
#include "tegula/train/step.h"

namespace tegula::cli {

std::string kernels_of(const Plan& plan) {
  std::vector<std::string> names;
  for (const Step& s : plan.steps) {
    const std::string name(s.kernel ? s.kernel->name : s.op->name);
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  std::string all;
  for (const std::string& n : names) all += (all.empty() ? "" : ",") + n;
  return all;
}

Status check_kernel(const Plan& plan, const std::string& kernel) {
  const auto is_asked = [&](const Step& s) { return s.kernel && s.kernel->name == kernel; };
  if (kernel.empty() || std::any_of(plan.steps.begin(), plan.steps.end(), is_asked)) return {};
  return unsupported(cat("--kernel ", kernel,
                         ": not a kernel of this call; without the flag it is ", kernels_of(plan)));
}

namespace {

using Options = BenchOptions;
using Work = BenchWork;

Result<std::vector<int64_t>> numbers(const std::string& text, size_t n, const char* names) {
  std::vector<int64_t> out;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    char* stop = nullptr;
    const std::string part = text.substr(at, end - at);
    const long long v = std::strtoll(part.c_str(), &stop, 10);
    if (part.empty() || *stop != '\0' || v < 1)
      return invalid_argument(
          cat("--shape: '", text, "' must be ", names, ", whole numbers from 1"));
    out.push_back(v);
    at = end + 1;
  }
  if (out.size() != n)
    return invalid_argument(
        cat("--shape: '", text, "' has ", out.size(), " numbers, must be ", names));
  return out;
}

// Each flag takes names of its own list only: what is no type's is gemm's int8.
DType dtype_of(const Options& o) { return parse_dtype(o.dtype).value_or(DType::kI8); }

// The features of --with and the operands that they need, for queries [b, h, n].
struct Features {
  AttentionOptions options;
  bool is_strided = false;  // heads before tokens in memory
};
Result<Features> features_of(const Options& o, Builder& b, const std::vector<int64_t>& s,
                             int64_t keys) {
  Features f;
  for (size_t at = 0; at < o.with.size();) {
    const size_t end = std::min(o.with.find(',', at), o.with.size());
    const std::string name = o.with.substr(at, end - at);
    at = end + 1;
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
      f.options.cu_seqlens_q = constant_ints(b, {0, s[2] / 2, s[2]}, DType::kI32);
      f.options.cu_seqlens_k = constant_ints(b, {0, keys / 2, keys}, DType::kI32);
    } else if (name == "strided") {
      f.is_strided = true;
    } else {
      return invalid_argument(cat("--with: '", name, "' is none of softcap, alibi, bias, ",
                                  "bias-of-keys, dropout, varlen, strided"));
    }
  }
  return f;
}

Result<Work> attention_work(const Options& o, bool decode) {
  const auto s = TEGULA_TRY(numbers(o.shape, 4, decode ? "B,H,KEYS,D" : "B,H,N,D"));
  const DType t = dtype_of(o);
  const int64_t b = s[0], h = s[1], d = s[3], n = decode ? 1 : s[2];
  const int64_t keys = decode ? s[2] : o.seqlen_k > 0 ? o.seqlen_k : n;
  const int64_t kv = o.kv_heads > 0 ? o.kv_heads : h;
  Work w;
  Builder build(*w.module, "attention");
  Features features = TEGULA_TRY(features_of(o, build, {b, h, n}, keys));
  AttentionOptions& options = features.options;
  const auto operand = [&](const char* name, int64_t rows, int64_t heads) {
    if (!features.is_strided) return build.param(name, {t, {b, rows, heads, d}});
    return transpose(build.param(name, {t, {b, heads, rows, d}}), 1, 2);
  };
  const Var q = operand("q", n, h), k = operand("k", keys, kv), v = operand("v", keys, kv);
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
  const double pairs =
      static_cast<double>(b * h * n) * static_cast<double>(keys) * (options.is_causal ? 0.5 : 1);
  w.flops = 4 * pairs * static_cast<double>(d) * ((fwd ? 1 : 0) + (bwd ? 2.5 : 0));
  w.op = bwd && !fwd ? "attention_bwd" : "attention";
  w.what = cat(decode ? "decode " : "attention ", o.shape, options.is_causal ? " causal " : " ",
               o.with, o.with.empty() ? "" : " ", o.dtype, decode ? "" : " ", decode ? "" : o.pass);
  return w;
}

Result<Work> gemm_work(const Options& o) {
  const auto s = TEGULA_TRY(numbers(o.shape, 3, "M,N,K"));
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
    b.result("c", matmul(x, y));
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
  return w;
}

Result<Work> train_work(const Options& o, CompileOptions& compile) {
  TrainConfig c = TEGULA_TRY(o.train.resolve());
  c.model.vocab_size = o.vocab_size;
  auto st = c.model.resolve();
  if (!st.ok()) return std::move(st).error();
  auto f = TEGULA_TRY(build_step_functions(c));
  compile = compile_options(c, compile.plan.n_threads);
  Work w;
  w.module = f.module;
  w.function = c.accumulate > 1 ? f.micro_step : f.train_step;
  w.tokens = static_cast<double>(c.batch * c.model.max_seqlen);
  w.integers_below = c.model.vocab_size;
  w.weights = f.weights;
  w.what = cat("a step of ", c.model.type, ", ", parameter_count(f.weights), " parameters");
  return w;
}

// One token of a model at the end of its context.
Result<Work> generate_work(const Options& o, CompileOptions& compile) {
  TrainConfig c = TEGULA_TRY(o.generate.resolve());
  c.model.vocab_size = o.vocab_size;
  TEGULA_TRY(c.model.resolve());
  Work w;
  const DType t = c.dtype == "bf16" ? DType::kBF16 : DType::kF32;
  w.function =
      TEGULA_TRY(build_decoding(*w.module, c.model, "decode", Dim(1), Dim(c.model.max_seqlen), t));
  compile.passes.pass.is_inference = true;
  w.tokens = 1;
  w.integers_below = c.model.vocab_size;
  w.what =
      cat("a token of ", c.model.type, " after ", c.model.max_seqlen - 1, " others, ", c.dtype);
  return w;
}

// Weights and state as a run begins, so that nothing grows without bound or becomes NaN (which has
// slower ways of its own); and decoding at the end of its cache.
void set_values(const Work& w, Measurement& m) {
  for (const WeightSpec& spec : w.weights)
    for (const TensorRef& t : m.values(spec.name)) init_weight(spec, 1, t);
  const auto fill = [&](const std::string& param, float value) {
    for (const TensorRef& t : m.values(param)) std::fill_n(t.as<float>(), t.numel(), value);
  };
  for (const WeightSpec& spec : w.weights)
    fill("adam.m." + spec.name, 0), fill("adam.v." + spec.name, 0),
        fill("momentum." + spec.name, 0);
  if (!w.weights.empty()) fill("lr", 1e-4F), fill("c1", 1), fill("c2", 1);
  const int cache = m.session().plan().find_param("cache.k.0");
  for (const TensorRef& t : m.values("position"))
    if (cache >= 0) *t.as<int64_t>() = m.session().param(cache).shape[1] - 1;
}

Status run(const Options& o, std::string_view kind) {
  if (o.device == "cuda" && (o.is_reads || o.tune != "off"))
    return unsupported("--reads and --tune are the CPU's: leave them out with --device cuda");
  if (o.is_reads) {
    const auto s = TEGULA_TRY(numbers(o.shape, 3, "M,N,K"));
    if (s[0] != s[1] || s[0] != s[2]) return invalid_argument("--reads: M, N and K must be equal");
    return print_reads(s[0], o.json);
  }
  const TrainFlags* model = kind == "train"      ? &o.train
                            : kind == "generate" ? &o.generate
                                                 : nullptr;  // with flags of its own
  ThreadPool pool(model ? model->config.threads : o.threads);
  CompileOptions compile_with;
  compile_with.plan.n_threads = pool.n_threads();
  Work w = TEGULA_TRY(kind == "gemm"       ? gemm_work(o)
                      : kind == "train"    ? train_work(o, compile_with)
                      : kind == "generate" ? generate_work(o, compile_with)
                      : kind == "decode"   ? attention_work(o, true)
                                           : attention_work(o, false));
  if (o.device == "cuda") return bench_on_cuda(w, o);
  if (!model) {
    compile_with.tune.mode = TEGULA_TRY(parse_tune_mode(o.tune));
    compile_with.tune.directory = o.tune_cache;
  }
  if (!o.kernel.empty()) compile_with.plan.force_kernel = {{w.op, o.kernel}};
  const Compiled compiled = TEGULA_TRY(compile(w.module, w.function, compile_with));
  for (const std::string& note : compiled.notes) std::fprintf(stderr, "note: %s\n", note.c_str());
  TEGULA_TRY(check_kernel(*compiled.plan, o.kernel));
  MeasureOptions how;
  how.repeats = o.repeats;
  how.cold_bytes = o.is_cold ? int64_t{1} << 30 : 0;
  how.is_sustained = o.is_sustained;
  Measurement m = TEGULA_TRY(Measurement::create(compiled.plan, &pool, how, w.integers_below));
  set_values(w, m);
  const Measured t = TEGULA_TRY(m.run());
  if (w.flops == 0) w.flops = static_cast<double>(t.math_flops);
  const double seconds = t.ms_median / 1e3, gflops = w.flops / seconds / 1e9;
  const double share = gflops * 1e9 / t.peak_flops_per_s;
  const double gbytes = static_cast<double>(compiled.plan->bytes()) / seconds / 1e9;
  if (!(model ? model->config.json : o.json)) {
    std::printf("%s, %d threads, %s\n", w.what.c_str(), pool.n_threads(),
                std::string(isa_name(machine_isa())).c_str());
    std::printf(
        "%.4g ms (least %.4g), %.4g GFLOP/s, %.1f %% of the %.4g measured beside it, %.4g GB/s\n",
        t.ms_median, t.ms_min, gflops, 100 * share, t.peak_flops_per_s / 1e9, gbytes);
    if (t.sustained_flops_per_s > 0)
      std::printf("%.1f %% of the %.4g GFLOP/s that multiply-adds sustain beside it\n",
                  1e11 * gflops / t.sustained_flops_per_s, t.sustained_flops_per_s / 1e9);
    if (w.tokens > 0) std::printf("%.5g tokens/s\n", w.tokens / seconds);
    if (t.read_bytes_per_s > 0)
      std::printf("%.1f %% of the %.4g GB/s that plain reads reach beside it\n",
                  1e11 * gbytes / t.read_bytes_per_s, t.read_bytes_per_s / 1e9);
    if (o.by_op) print_by_op(TEGULA_TRY(times_by_op(m)));
    return {};
  }
  Json j = Json::object({{"what", w.what},
                         {"threads", pool.n_threads()},
                         {"isa", isa_name(machine_isa())},
                         {"ms_median", t.ms_median},
                         {"ms_min", t.ms_min},
                         {"gflops", gflops},
                         {"gbytes_per_s", gbytes},
                         {"peak_gflops", t.peak_flops_per_s / 1e9},
                         {"share_of_peak", share},
                         {"flops", w.flops},
                         {"flops_counted", t.math_flops},
                         {"flops_executed", t.executed_flops},
                         {"tokens_per_s", w.tokens / seconds},
                         {"kernel", kernels_of(*compiled.plan)}});
  if (t.sustained_flops_per_s > 0) j.set("sustained_gflops", t.sustained_flops_per_s / 1e9);
  if (t.read_bytes_per_s > 0) {
    j.set("read_gbytes_per_s", t.read_bytes_per_s / 1e9);
    j.set("share_of_reads", 1e9 * gbytes / t.read_bytes_per_s);
  }
  if (const int loss = compiled.plan->find_result("loss"); loss >= 0)
    j.set("loss", static_cast<double>(*m.session().result(loss).as<float>()));
  if (o.by_op) j.set("ops", TEGULA_TRY(times_by_op(m)));
  std::printf("%s\n", j.dump().c_str());
  return {};
}

void add_common(CLI::App& cmd, Options& o) {
  whole(cmd.add_option("--threads", o.threads, "0: all cores"), 0, 4096);
  whole(cmd.add_option("--repeats", o.repeats, "Timed samples; the median counts"), 1, 10000);
  one_of(cmd.add_option("--device", o.device, "Where"), {"cpu", "cuda"});
  add_tuning(cmd, o.tune, o.tune_cache);
  cmd.add_flag("--sustained", o.is_sustained,
               "Also the rate of multiply-adds over a sample's time, by the same clock (CPU)");
  cmd.add_flag("--json", o.json, "One JSON object on the last line");
}

void add_kernel(CLI::App& cmd, Options& o) {
  cmd.add_option("--kernel", o.kernel, "A rung by name: dot_naive, attention_tiled, ...")
      ->type_name("NAME");
}

CLI::Option* add_shape(CLI::App& cmd, Options& o, const char* names) {
  cmd.add_option("--shape", o.shape, names)->required();
  return cmd.add_option("--dtype", o.dtype, "Of the operands");
}

}  // namespace

void add_bench(CLI::App& app, int& exit_code) {
  auto* bench =
      app.add_subcommand("bench", "Times one kernel or one step beside the machine's limit");
  bench->require_subcommand(1);
  static Options o;
  const auto add = [&](const char* name, const char* doc) {
    auto* cmd = bench->add_subcommand(name, doc);
    cmd->callback([&exit_code, name] {
      const Status st = run(o, name);
      exit_code = st.ok() ? 0 : report(st.error());
    });
    return cmd;
  };
  auto* attention = add("attention", "softmax(Q K^T) V and its gradients");
  one_of(add_shape(*attention, o, "B,H,N,D: batch, query heads, queries, width of a head"),
         {"f32", "bf16", "f16", "f8e4m3"});
  whole(attention->add_option("--kv-heads", o.kv_heads, "Key heads; 0: as query heads"), 0);
  whole(attention->add_option("--seqlen-k", o.seqlen_k, "Keys; 0: as queries"), 0);
  whole(attention->add_option("--window", o.window, "Keys before a query that it sees; -1: all"),
        -1);
  add_kernel(*attention, o);
  attention->add_flag("--causal", o.is_causal, "Queries see no later key");
  attention->add_option("--with", o.with,
                        "Of softcap, alibi, bias, bias-of-keys, dropout, varlen, strided: a,b,…");
  one_of(attention->add_option("--pass", o.pass, "Which direction"), {"fwd", "bwd", "fwdbwd"});
  attention->add_flag("--deterministic", o.is_deterministic,
                      "Only kernels with the same bits in every run (--device cuda)");
  add_common(*attention, o);
  auto* decode = add("decode", "One query a sequence against a cache of keys");
  one_of(add_shape(*decode, o, "B,H,KEYS,D: batch, query heads, keys, width of a head"),
         {"f32", "bf16", "f16"});
  add_kernel(*decode, o);
  whole(decode->add_option("--kv-heads", o.kv_heads, "Key heads; 0: as query heads"), 0);
  decode->add_flag("--cold", o.is_cold, "Caches in turn, 1 GiB of them: every run reads memory");
  add_common(*decode, o);
  auto* gemm = add("gemm", "A matrix product");
  one_of(add_shape(*gemm, o, "M,N,K: [M, K] times [K, N]"), {"f32", "bf16", "f16", "int8"});
  one_of(gemm->add_option("--weights", o.weights, "Of [K, N], beside f32 or int8 rows"),
         {"as the operands", "int8", "int4"});
  gemm->add_flag("--along-k", o.is_along_k, "[K, N] lies in memory as [N, K]");
  gemm->add_flag("--along-m", o.is_along_m, "[M, K] lies in memory as [K, M]");
  gemm->add_flag("--cold", o.is_cold, "Matrices in turn, 1 GiB of them: every run reads memory");
  gemm->add_flag("--reads", o.is_reads, "Count what each rung reads, beside its formula");
  add_kernel(*gemm, o);
  add_common(*gemm, o);
  const auto add_model_flags = [&](CLI::App& cmd, TrainFlags& flags) {
    flags.add_to(cmd, /*needs_data=*/false);
    whole(cmd.add_option("--vocab-size", o.vocab_size, "Tokens in the vocabulary"), 1, 1 << 24);
    whole(cmd.add_option("--repeats", o.repeats, "Timed samples; the median counts"), 1, 10000);
    cmd.add_flag("--by-op", o.by_op, "What each kernel takes of it, too");
  };
  add_model_flags(*add("train", "A training step, on tokens made up"), o.train);
  auto* generate = add("generate", "One token at the end of a context of --seqlen");
  add_model_flags(*generate, o.generate);
  generate->add_flag("--cold", o.is_cold, "Weights in turn, 1 GiB of them");
}

}  // namespace tegula::cli
