#include "cli/plan_model.h"
#include "tegula/base/algorithm.h"
#include "tegula/ops/math.h"
#include "tegula/planner/model_config.h"
#include "tegula/runtime/compile.h"
#include "tegula/runtime/measure.h"
#include "tegula/runtime/probe.h"

namespace tegula::cli {

namespace {

constexpr int64_t kSide = 1024;  // of a weight
constexpr int64_t kRows[] = {1, 2, 4, 8, 16, 64, 256, 1024};
constexpr double kMostBytes = 256 << 20;  // more than any cache

// Seconds of a run over inputs that together have `cold_bytes`.
Result<double> seconds_of(Rank& rank, const Target& target, double cold_bytes,
                          const std::shared_ptr<Module>& module, FuncId f) {
  CompileOptions o;
  o.plan.target = target, o.passes.pass.mode = Mode::kFast;
  const Compiled compiled = TEGULA_TRY(compile(module, f, o));
  MeasureOptions m;
  m.repeats = 5, m.cold_bytes = static_cast<int64_t>(cold_bytes);
  Measurement measurement = TEGULA_TRY(Measurement::create(compiled.plan, rank, m));
  return TEGULA_TRY(measurement.run()).ms_median / 1e3;
}

// Seconds of an op that has next to nothing to do.
Result<double> least_seconds(Rank& rank, const Target& target) {
  auto module = std::make_shared<Module>();
  Builder b(*module, "least");
  const Type few{DType::kF32, {16}};
  b.result("y", b.param("a", few) + b.param("b", few));
  return seconds_of(rank, target, 0, module, TEGULA_TRY(b.finish_into_module()));
}

// Seconds of rows times a weight that lies as most families have it.
Result<double> product_seconds(Rank& rank, const Target& target, DType dtype, int64_t rows,
                               double cold_bytes) {
  auto module = std::make_shared<Module>();
  Builder b(*module, "product");
  b.result("y", dot("m k, n k -> m n", b.param("x", {dtype, {rows, kSide}}),
                    b.param("w", {dtype, {kSide, kSide}})));
  return seconds_of(rank, target, cold_bytes, module, TEGULA_TRY(b.finish_into_module()));
}

Result<Accelerator> this_cpu(int n_threads, Number number, double bytes) {
  Rank rank(n_threads);
  const Target t = Target::this_cpu(rank.pool.n_threads());
  const DType dtype = number == Number::kBf16 ? DType::kBF16 : DType::kF32;
  const double element = bytes_of(number), cold = std::min(bytes, kMostBytes);
  Accelerator a;
  a.name = kThisCpu, a.source = cat("measured, ", t.n_threads, " threads");
  std::vector<double> seconds, rates;
  for (const int64_t rows : kRows) {
    seconds.push_back(TEGULA_TRY(product_seconds(rank, t, dtype, rows, cold)));
    rates.push_back(2.0 * kSide * kSide * static_cast<double>(rows) / seconds.back());
  }
  const double peak =
      std::max(probe_flops(rank.pool), *std::max_element(rates.begin(), rates.end()));
  a.flops_per_s[static_cast<int>(number)] = peak;
  for (size_t i = 0; i < rates.size(); ++i)
    a.matmul_shares.push_back({static_cast<double>(kRows[i]), rates[i] / peak});
  a.memory_bytes = static_cast<double>(t.memory_bytes);
  a.memory_bytes_per_s = element * kSide * kSide / seconds[0], a.sustained.memory = 1;
  a.launch_s = TEGULA_TRY(least_seconds(rank, t));
  return a;
}

}  // namespace

Status add_this_cpu(planner::Question& q, int n_threads) {
  if (!q.gpus.ends_with(kThisCpu)) return {};
  if (q.gpus != kThisCpu && q.gpus != cat("1x", kThisCpu))
    return invalid_argument(
        cat("--gpus ", q.gpus, ": there is one of it: --gpus ", kThisCpu, ", with --threads"));
  const planner::ModelPreset preset = TEGULA_TRY(planner::read_model(q.model));
  const planner::ParamCount count = TEGULA_TRY(planner::count_params(preset.model));
  const Number number = TEGULA_TRY(parse_number(q.dtype));
  if (number != Number::kF32 && number != Number::kBf16)
    return unsupported(cat("--dtype ", q.dtype, ": ", kThisCpu, " is measured in f32 and bf16"));
  const double bytes = bytes_of(number) * static_cast<double>(count.total);
  q.machines.push_back(TEGULA_TRY(this_cpu(n_threads, number, bytes)));
  return {};
}

}  // namespace tegula::cli
