// tegula bench: one kernel or one training step, timed beside the machine's own limit.
#include "cli/bench.h"

#include <cstdio>

#include "cli/by_op.h"
#include "cli/command.h"
#include "cli/machine.h"
#include "cli/process.h"
#include "tegula/base/algorithm.h"
#include "tegula/base/philox.h"
#include "tegula/base/text.h"
#include "tegula/io/json.h"
#include "tegula/models/init.h"
#include "tegula/runtime/compile.h"
#include "tegula/runtime/measure.h"
#include "tegula/train/step.h"

namespace tegula::cli {

namespace {
void add_name(std::vector<std::string>& names, std::string_view name) {
  if (std::find(names.begin(), names.end(), name) == names.end()) names.emplace_back(name);
}
}  // namespace

std::vector<std::string> kernels_of(const Plan& plan) {
  std::vector<std::string> names;
  for (const Step& s : plan.steps) add_name(names, s.kernel ? s.kernel->name : s.op->name);
  return names;
}

std::string by_commas(const std::vector<std::string>& names) { return joined(names, ","); }

Status check_kernel(const Plan& plan, const std::string& kernel) {
  const auto is_asked = [&](const Step& s) { return s.kernel && s.kernel->name == kernel; };
  if (kernel.empty() || std::any_of(plan.steps.begin(), plan.steps.end(), is_asked)) return {};
  return unsupported(cat("--kernel ", kernel,
                         ": not a kernel of this call; without the flag it is ",
                         by_commas(kernels_of(plan))));
}

bool set_value(const BenchWork& w, std::string_view param, const TensorRef& t) {
  const auto fill = [&](float value) {
    std::fill_n(t.as<float>(), t.numel(), value);
    return true;
  };
  if (param == "ids") {  // rows of a table, in no order
    for (int64_t i = 0; i < t.numel(); ++i)
      t.as<int32_t>()[i] = static_cast<int32_t>(philox_bits(1, 0, static_cast<uint64_t>(i)) %
                                                static_cast<uint64_t>(w.integers_below));
    return true;
  }
  if (const auto given = w.given.find(std::string(param)); given != w.given.end()) {
    for (int64_t i = 0; i < t.numel(); ++i)
      t.as<int32_t>()[i] = static_cast<int32_t>(given->second[static_cast<size_t>(i)]);
    return true;
  }
  if (w.weights.empty()) return false;
  if (param == "lr") return fill(1e-4F);
  if (param == "c1" || param == "c2") return fill(1);
  for (const char* state : {"adam.m.", "adam.v.", "momentum."})
    if (param.starts_with(state)) return fill(0);
  for (const WeightSpec& spec : w.weights)
    if (spec.name == param) {
      ThreadPool pool;
      init_weight(spec, 1, t, &pool);
      return true;
    }
  return false;
}

namespace {

using Options = BenchOptions;
using Work = BenchWork;

void set_values(const Work& w, Measurement& m) {
  for (const auto& p : m.session().plan().params)
    for (const TensorRef& t : m.values(p.name)) (void)set_value(w, p.name, t);
  // Decoding at the end of its cache.
  const int cache = m.session().plan().find_param("cache.k.0");
  for (const TensorRef& t : m.values("position"))
    if (cache >= 0) *t.as<int64_t>() = m.session().param(cache).shape[1] - 1;
}

}  // namespace

void BenchTimes::add(const BenchTimes& other) {
  for (const std::string& k : other.kernels) add_name(kernels, k);
  flops += other.flops, bytes += other.bytes;
  Measured& m = measured;
  const Measured& o = other.measured;
  m.ms_median += o.ms_median, m.ms_min += o.ms_min;
  m.math_flops += o.math_flops, m.executed_flops += o.executed_flops;
  m.peak_flops_per_s = std::max(m.peak_flops_per_s, o.peak_flops_per_s);
  m.sustained_flops_per_s = std::max(m.sustained_flops_per_s, o.sustained_flops_per_s);
  m.read_bytes_per_s = std::max(m.read_bytes_per_s, o.read_bytes_per_s);
}

void BenchTimes::print() const {
  const Measured& m = measured;
  std::printf(
      "%.4g ms (least %.4g), %.4g GFLOP/s, %.1f %% of the %.4g measured beside it, %.4g GB/s\n",
      m.ms_median, m.ms_min, gflops(), 100 * share_of_peak(), m.peak_flops_per_s / 1e9,
      gbytes_per_s());
  if (m.sustained_flops_per_s > 0)
    std::printf("%.1f %% of the %.4g GFLOP/s that multiply-adds sustain beside it\n",
                1e11 * gflops() / m.sustained_flops_per_s, m.sustained_flops_per_s / 1e9);
  if (m.read_bytes_per_s > 0)
    std::printf("%.1f %% of the %.4g GB/s that plain reads reach beside it\n",
                100 * share_of_reads(), m.read_bytes_per_s / 1e9);
}

Json BenchTimes::json() const {
  const Measured& m = measured;
  Json j = Json::object({{"what", what},
                         {"ms_median", m.ms_median},
                         {"ms_min", m.ms_min},
                         {"gflops", gflops()},
                         {"gbytes_per_s", gbytes_per_s()},
                         {"peak_gflops", m.peak_flops_per_s / 1e9},
                         {"share_of_peak", share_of_peak()},
                         {"flops", flops},
                         {"flops_counted", m.math_flops},
                         {"flops_executed", m.executed_flops},
                         {"kernel", by_commas(kernels)}});
  if (m.sustained_flops_per_s > 0) j.set("sustained_gflops", m.sustained_flops_per_s / 1e9);
  if (m.read_bytes_per_s > 0) {
    j.set("read_gbytes_per_s", m.read_bytes_per_s / 1e9);
    j.set("share_of_reads", share_of_reads());
  }
  return j;
}

Status print_notes(const Compiled& compiled, const CompileOptions& with, const BenchOptions& o) {
  for (const std::string& note : compiled.notes) print_note(note);
  if (with.passes.pass.block_rows == 0) return {};
  const std::string note = note_on_blocks(TEGULA_TRY(o.train.resolve()), compiled.reports);
  if (!note.empty()) print_note(note);
  return {};
}

Result<BenchRun> time_work(const BenchWork& w, const BenchOptions& o, CompileOptions with,
                           Rank& rank) {
  if (!o.kernel.empty()) with.plan.force_kernel = {{w.op, o.kernel}};
  const Compiled compiled = TEGULA_TRY(compile(w.module, w.function, with));
  TEGULA_TRY(print_notes(compiled, with, o));
  TEGULA_TRY(check_kernel(*compiled.plan, o.kernel));
  MeasureOptions how;
  how.repeats = o.repeats;
  how.cold_bytes = o.is_cold ? int64_t{1} << 30 : 0;
  how.is_sustained = o.is_sustained;
  BenchRun r{TEGULA_TRY(Measurement::create(compiled.plan, rank, how, w.integers_below)),
             {w.what, kernels_of(*compiled.plan), {}}};
  set_values(w, r.measurement);
  r.times.measured = TEGULA_TRY(r.measurement.run());
  r.times.flops = w.flops > 0 ? w.flops : static_cast<double>(r.times.measured.math_flops);
  r.times.bytes = w.bytes > 0 ? w.bytes : static_cast<double>(compiled.plan->bytes());
  return r;
}

namespace {

Status set_tuning(const Options& o, CompileOptions& with) {
  with.tune.mode = TEGULA_TRY(parse_tune_mode(o.tune));
  with.tune.directory = o.tune_cache;
  return {};
}

void print_heading(const std::string& what, const ThreadPool& pool) {
  std::printf("%s, %d threads, %s\n", what.c_str(), pool.n_threads(),
              std::string(isa_name(machine_isa())).c_str());
}

Json json_of(const BenchTimes& times, const ThreadPool& pool) {
  Json j = times.json();
  j.set("threads", pool.n_threads());
  j.set("isa", isa_name(machine_isa()));
  return j;
}

Status run(const Options& o, std::string_view kind) {
  if (o.device == "cuda" && (o.is_reads || o.is_sustained || o.tune != "off"))
    return unsupported(
        "--reads, --sustained and --tune are the CPU's: leave them out with --device cuda");
  if (o.is_reads) {
    const auto s = TEGULA_TRY(shape_numbers(o.shape, 3, "M,N,K"));
    if (s[0] != s[1] || s[0] != s[2]) return invalid_argument("--reads: M, N and K must be equal");
    return print_reads(s[0], o.json);
  }
  const TrainFlags* model = kind == "train"      ? &o.train
                            : kind == "generate" ? &o.generate
                                                 : nullptr;  // with flags of its own
  Rank rank(model ? model->config.threads : o.threads);
  CompileOptions compile_with;
  compile_with.plan.target = Target::this_cpu(rank.pool.n_threads());
  const Work w = TEGULA_TRY(bench_work(kind, o, compile_with));
  if (o.device == "cuda") {
    Options with = o;
    if (model) with.json = model->config.json, with.dtype = model->config.dtype;
    return bench_on_cuda(w, with, model ? &compile_with : nullptr);
  }
  if (!model) TEGULA_TRY(set_tuning(o, compile_with));
  BenchRun r = TEGULA_TRY(time_work(w, o, compile_with, rank));
  const double tokens_per_s = 1e3 * w.tokens / r.times.measured.ms_median;
  if (!(model ? model->config.json : o.json)) {
    print_heading(w.what, rank.pool);
    r.times.print();
    if (w.tokens > 0) std::printf("%.5g tokens/s\n", tokens_per_s);
    if (o.by_op) print_by_op(TEGULA_TRY(times_by_op(r.measurement)));
    return {};
  }
  Json j = json_of(r.times, rank.pool);
  j.set("tokens_per_s", tokens_per_s);
  Session& session = r.measurement.session();
  if (const int loss = session.plan().find_result("loss"); loss >= 0)
    j.set("loss", static_cast<double>(*session.result(loss).as<float>()));
  if (o.by_op) j.set("ops", TEGULA_TRY(times_by_op(r.measurement)));
  print_line(j);
  return {};
}

void print_times(const std::string& name, const BenchTimes& t) {
  std::printf("%-20s %9.4g ms %8.4g GB/s", name.c_str(), t.measured.ms_median, t.gbytes_per_s());
  if (t.measured.read_bytes_per_s > 0)
    std::printf(", %5.1f %% of plain reads", 100 * t.share_of_reads());
  std::printf(" %8.4g GFLOP/s  %s\n", t.gflops(), by_commas(t.kernels).c_str());
  std::fflush(stdout);  // the next one may take seconds
}

Status run_ops(const Options& o) {
  if (o.device == "cuda")
    return unsupported("bench ops: the GPU has no kernels of these ops: leave out --device cuda");
  Rank rank(o.threads);
  CompileOptions compile_with;
  compile_with.plan.target = Target::this_cpu(rank.pool.n_threads());
  TEGULA_TRY(set_tuning(o, compile_with));
  const std::vector<Work> works = TEGULA_TRY(op_works(o));
  BenchTimes sum;
  sum.what = cat("ops ", o.shape, " ", o.dtype);
  if (!o.json) print_heading(sum.what, rank.pool);
  Json::Array rows;
  for (const Work& w : works) {
    const BenchTimes times = TEGULA_TRY(time_work(w, o, compile_with, rank)).times;
    sum.add(times);
    if (!o.json) print_times(w.op, times);
    Json row = times.json();
    row.set("op", w.op);
    rows.push_back(std::move(row));
  }
  if (!o.json) return {};
  Json j = json_of(sum, rank.pool);
  j.set("ops", std::move(rows));
  print_line(j);
  return {};
}

void add_common(const Command& cmd, Options& o) {
  add_threads(cmd, o.threads);
  whole(cmd.add_option("--repeats", o.repeats, "Timed samples; the median counts"), 1, 10000);
  one_of(cmd.add_option("--device", o.device, "Where"), {"cpu", "cuda"});
  add_tuning(cmd, o.tune, o.tune_cache);
  cmd.add_flag("--sustained", o.is_sustained,
               "Also the rate of multiply-adds over a sample's time, by the same clock (CPU)");
  cmd.add_flag("--json", o.json, "One JSON object on the last line");
}

void add_vocab_size(const Command& cmd, Options& o) {
  whole(cmd.add_option("--vocab-size", o.vocab_size, "Tokens in the vocabulary"), 1, 1 << 24);
}

void add_kernel(const Command& cmd, Options& o) {
  cmd.add_option("--kernel", o.kernel, "A rung by name: dot_naive, attention_tiled, ...")
      .type_name("NAME");
}

Flag add_shape(const Command& cmd, Options& o, const char* names) {
  cmd.add_option("--shape", o.shape, names).required();
  return cmd.add_option("--dtype", o.dtype, "Of the operands");
}

}  // namespace

void add_bench(const Command& app, int& exit_code) {
  const auto bench =
      app.add_command("bench", "Times one kernel or one step beside the machine's limit");
  bench.require_command();
  static Options o;
  const auto add = [&](const char* name, const char* doc) {
    const auto cmd = bench.add_command(name, doc);
    cmd.callback([&exit_code, name] {
      exit_code = report(name == std::string_view("ops") ? run_ops(o) : run(o, name), kUsage);
    });
    return cmd;
  };
  const auto attention = add("attention", "softmax(Q K^T) V and its gradients");
  one_of(add_shape(attention, o, "B,H,N,D: batch, query heads, queries, width of a head"),
         {"f32", "bf16", "f16", "f8e4m3"});
  whole(attention.add_option("--kv-heads", o.kv_heads, "Key heads; 0: as query heads"), 0);
  whole(attention.add_option("--seqlen-k", o.seqlen_k, "Keys; 0: as queries"), 0);
  whole(attention.add_option("--window", o.window, "Keys before a query that it sees; -1: all"),
        -1);
  add_kernel(attention, o);
  attention.add_flag("--causal", o.is_causal, "Queries see no later key");
  attention.add_option("--with", o.with,
                       "Of softcap, alibi, bias, bias-of-keys, dropout, varlen, strided: a,b,…");
  one_of(attention.add_option("--pass", o.pass, "Which direction"), {"fwd", "bwd", "fwdbwd"});
  attention.add_flag("--deterministic", o.is_deterministic,
                     "Only kernels with the same bits in every run (--device cuda)");
  add_common(attention, o);
  const auto decode = add("decode", "One query a sequence against a cache of keys");
  one_of(add_shape(decode, o, "B,H,KEYS,D: batch, query heads, keys, width of a head"),
         {"f32", "bf16", "f16"});
  add_kernel(decode, o);
  whole(decode.add_option("--kv-heads", o.kv_heads, "Key heads; 0: as query heads"), 0);
  one_of(decode.add_option("--cache-dtype", o.cache_dtype,
                           "Of keys and values: halves beside queries in f32; default: --dtype"),
         {"f32", "bf16", "f16"});
  decode.add_flag("--cold", o.is_cold, "Caches in turn, 1 GiB of them: every run reads memory");
  add_common(decode, o);
  const auto gemm = add("gemm", "A matrix product");
  one_of(add_shape(gemm, o, "M,N,K: [M, K] times [K, N]"), {"f32", "bf16", "f16", "int8"});
  one_of(gemm.add_option("--weights", o.weights, "Of [K, N], beside f32 or int8 rows"),
         {"as the operands", "int8", "int4"});
  gemm.add_option("--epilogue", o.epilogue, "What follows the sums: some of scale,bias,gelu");
  gemm.add_flag("--along-k", o.is_along_k, "[K, N] lies in memory as [N, K]");
  gemm.add_flag("--along-m", o.is_along_m, "[M, K] lies in memory as [K, M]");
  gemm.add_flag("--cold", o.is_cold, "Matrices in turn, 1 GiB of them: every run reads memory");
  gemm.add_flag("--reads", o.is_reads, "Count what each rung reads, beside its formula");
  add_kernel(gemm, o);
  add_common(gemm, o);
  const auto ops = add("ops", "Norms, softmax, the loss, AdamW and others, one after the other");
  ops.add_option("--shape", o.shape, "ROWS,COLUMNS of x").default_val("1024,768");
  one_of(ops.add_option("--dtype", o.dtype, "Of the operands; adamw and quantise: f32"),
         {"f32", "bf16"});
  add_vocab_size(ops, o);
  one_of(ops.add_option("--only", o.only, "One of them"), op_bench_names());
  ops.add_flag("--cold", o.is_cold, "Operands in turn, 1 GiB of them: every run reads memory");
  add_common(ops, o);
  const auto add_model_flags = [&](const Command& cmd, TrainFlags& flags, Purpose purpose) {
    flags.add_to(cmd, purpose);
    add_vocab_size(cmd, o);
    whole(cmd.add_option("--repeats", o.repeats, "Timed samples; the median counts"), 1, 10000);
    one_of(cmd.add_option("--device", o.device, "Where"), {"cpu", "cuda"});
    cmd.add_flag("--by-op", o.by_op,
                 "What each part of the model, and each kernel in it, takes of it, too");
  };
  add_model_flags(add("train", "A training step, on tokens made up"), o.train, Purpose::kStep);
  const auto generate = add("generate", "A token of each text, at the end of contexts of --seqlen");
  add_model_flags(generate, o.generate, Purpose::kToken);
  whole(generate.add_option("--texts", o.texts, "Texts that decode together"), 1, 4096);
  generate.add_flag("--cold", o.is_cold, "Weights in turn, 1 GiB of them");
  add_bench_comm(bench, exit_code);
  add_bench_graph(bench, exit_code);
  add_bench_pipeline(bench, exit_code);
}

}  // namespace tegula::cli
