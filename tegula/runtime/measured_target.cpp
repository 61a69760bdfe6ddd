#include "tegula/runtime/measured_target.h"

#include "tegula/base/algorithm.h"
#include "tegula/ops/math.h"
#include "tegula/runtime/compile.h"
#include "tegula/runtime/measure.h"
#include "tegula/runtime/probe.h"

namespace tegula {

namespace {

constexpr int64_t kSide = 1024;     // of the product
constexpr int64_t kFar = 16 << 20;  // elements of each of the sum's three tensors

Result<Measured> time(Rank& rank, const Target& target, Var (*write)(Builder&)) {
  auto module = std::make_shared<Module>();
  Builder b(*module, "probe");
  b.result("y", write(b));
  const FuncId f = TEGULA_TRY(b.finish_into_module());
  CompileOptions o;
  o.plan.target = target;
  o.passes.pass.mode = Mode::kFast;
  const Compiled compiled = TEGULA_TRY(compile(module, f, o));
  MeasureOptions m;
  m.repeats = 5;
  Measurement measurement = TEGULA_TRY(Measurement::create(compiled.plan, rank, m));
  return measurement.run();
}

template <DType kType>
Var product(Builder& b) {
  const Type square{kType, {kSide, kSide}};
  return matmul(b.param("a", square), b.param("b", square));
}

Var sum(Builder& b) {
  const Type far{DType::kF32, {kFar}};
  return b.param("a", far) + b.param("b", far);
}

}  // namespace

Result<Target> measured_target(Rank& rank) {
  Target t = Target::this_cpu(rank.pool.n_threads());
  const MachineSpeed peak = probe_machine(t.n_threads);
  t.bytes_per_s = peak.bytes_per_s;
  const double flops = 2.0 * kSide * kSide * kSide;
  const Measured f32 = TEGULA_TRY(time(rank, t, product<DType::kF32>)),
                 bf16 = TEGULA_TRY(time(rank, t, product<DType::kBF16>)),
                 far = TEGULA_TRY(time(rank, t, sum));
  t.f32_flops_per_s = std::max(peak.flops_per_s, f32.peak_flops_per_s);
  t.flops_efficiency = std::min(1.0, 1e3 * flops / f32.ms_median / t.f32_flops_per_s);
  t.bf16_flops_per_s = 1e3 * flops / bf16.ms_median / t.flops_efficiency;
  t.bytes_efficiency =
      std::min(1.0, 1e3 * 3 * sizeof(float) * kFar / far.ms_median / t.bytes_per_s);
  return t;
}

}  // namespace tegula
