// tegula bench --device cuda: the same functions, planned with the plug-in's kernels and timed by
// the device's clock.
#include <cstdio>

#include "cli/bench.h"
#include "cli/by_op.h"
#include "cli/command.h"
#include "tegula/base/algorithm.h"
#include "tegula/io/json.h"
#include "tegula/kernels/device.h"
#include "tegula/runtime/compile.h"
#include "tegula/runtime/measure.h"

namespace tegula::cli {

namespace {

// For each op with a CUDA kernel whose bits vary from run to run: those that repeat theirs, best
// first.
std::vector<std::pair<std::string, std::string>> repeating_kernels() {
  std::vector<const KernelDef*> all;
  for (const KernelDef* k : all_kernels())
    if (k->device == DeviceKind::kCuda && k->repeats_bits && k->priority >= 0) all.push_back(k);
  std::stable_sort(all.begin(), all.end(), [](const KernelDef* a, const KernelDef* b) {
    return a->priority > b->priority;
  });
  std::vector<std::pair<std::string, std::string>> names;
  for (const KernelDef* k : all) names.emplace_back(k->op, k->name);
  return names;
}

// `asked`: the kernel that --kernel names, or "".
Status check_repeats(const Plan& plan, std::string_view asked) {
  for (const Step& s : plan.steps)
    if (s.kernel != nullptr && !s.kernel->repeats_bits)
      return unsupported(asked == s.kernel->name
                             ? cat("--deterministic: ", asked, " does not repeat its bits (",
                                   s.kernel->doc,
                                   "): leave out one of --deterministic and --kernel")
                             : cat("--deterministic: of these operands and options op ", s.op->name,
                                   " has only ", s.kernel->name, " (", s.kernel->doc,
                                   "): leave the flag out, or use --device cpu"));
  return {};
}

}  // namespace

Status bench_on_cuda(const BenchWork& w, const BenchOptions& o, const CompileOptions* model) {
  Device* device = TEGULA_TRY(open_device());
  CompileOptions with;
  if (model) with = *model;
  with.plan.target = device->target();
  // An op without a kernel stays what it is, so that it is the one that is named.
  const Planning every_op_has_one;
  if (!model) {
    with.passes.pass.mode = Mode::kFast;  // no shards over k: the GPU's default
    with.passes.pass.planning = &every_op_has_one;
  }
  if (o.is_deterministic) with.plan.force_kernel = repeating_kernels();
  if (!o.kernel.empty()) with.plan.force_kernel = {{w.op, o.kernel}};
  const Compiled compiled = TEGULA_TRY(compile(w.module, w.function, with));
  TEGULA_TRY(print_notes(compiled, with, o));
  TEGULA_TRY(check_kernel(*compiled.plan, o.kernel));
  if (o.is_deterministic) TEGULA_TRY(check_repeats(*compiled.plan, o.kernel));
  MeasureOptions how;
  how.repeats = o.repeats;
  how.cold_bytes = o.is_cold ? int64_t{1} << 30 : 0;
  OfDevice more;
  more.integers_below = w.integers_below;
  BenchWork work = w;
  more.context = &work;
  more.set = [](void* context, std::string_view param, const TensorRef& value) {
    return set_value(*static_cast<const BenchWork*>(context), param, value);
  };
  std::vector<StepStats> stats;
  if (o.by_op) more.by_step = &stats;
  const Measured t = TEGULA_TRY(measure_on_device(compiled.plan, *device, how, more));

  // Times of a replayed step, where the driver was traced: apart, small kernels take several times
  // as long.
  std::vector<int64_t> launches;
  for (const StepStats& s : stats) launches.push_back(s.launches);
  if (const std::vector<int> steps = steps_of(t.trace.spans, launches); !steps.empty()) {
    const std::vector<double> own = own_ms(t.trace.spans);
    for (StepStats& s : stats) s.seconds = 0;
    for (size_t k = 0; k < own.size(); ++k)
      if (steps[k] >= 0) stats[static_cast<size_t>(steps[k])].seconds += own[k] / 1e3;
    share_out(stats);
  }

  const Target& target = device->target();
  const double seconds = t.ms_median / 1e3,
               gflops = (w.flops > 0 ? w.flops : static_cast<double>(compiled.plan->flops())) /
                        seconds / 1e9;
  const double gbytes = static_cast<double>(compiled.plan->bytes()) / seconds / 1e9;
  const double peak = (o.dtype == "f32"      ? target.f32_flops_per_s
                       : o.dtype == "f8e4m3" ? 2 * target.bf16_flops_per_s
                                             : target.bf16_flops_per_s) /
                      1e9;
  const double peak_gbytes = target.bytes_per_s / 1e9;
  if (!o.json) {
    std::printf("%s, %s\n", w.what.c_str(), target.name.c_str());
    std::printf(
        "%.4g ms (least %.4g), %.4g GFLOP/s, %.1f %% of its %.4g, %.4g GB/s, %.1f %% of "
        "its %.4g\n",
        t.ms_median, t.ms_min, gflops, 100 * gflops / peak, peak, gbytes,
        100 * gbytes / peak_gbytes, peak_gbytes);
    if (w.tokens > 0) std::printf("%.5g tokens/s\n", w.tokens / seconds);
    if (o.by_op) {
      print_by_op(times_by_op(*compiled.plan, stats));
      std::printf("%s\n", gaps_of(t.trace, t.ms_median).c_str());
    }
    return {};
  }
  Json j = Json::object({{"what", w.what},
                         {"device", target.name},
                         {"ms_median", t.ms_median},
                         {"ms_min", t.ms_min},
                         {"gflops", gflops},
                         {"gbytes_per_s", gbytes},
                         {"peak_gflops", peak},
                         {"share_of_peak", gflops / peak},
                         {"peak_gbytes_per_s", peak_gbytes},
                         {"share_of_bandwidth", gbytes / peak_gbytes},
                         {"first_ms", t.first_ms},
                         {"is_cold", o.is_cold},
                         {"flops", w.flops},
                         {"tokens_per_s", w.tokens / seconds},
                         {"peak_bytes", compiled.plan->peak_bytes()},
                         {"kernel", by_commas(kernels_of(*compiled.plan))}});
  if (o.by_op) {
    j.set("ops", times_by_op(*compiled.plan, stats));
    if (t.trace.spans.empty())
      j.set("gaps_unknown", t.trace.missing);
    else
      j.set("kernels_ms", busy_ms(t.trace.spans)), j.set("traced_ms", length_ms(t.trace.spans));
  }
  print_line(j);
  return {};
}

}  // namespace tegula::cli
