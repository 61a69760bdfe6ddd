// while (condition(carry, invariants)) carry = body(carry, invariants), at most max_trips times.
//
// The bound is part of the meaning: the loop stops there. It prices the loop (its FLOPs are those
// of max_trips rounds, the run's may be fewer) and gives reverse mode its length: the derivatives
// are those of a scan of max_trips steps, each of which does nothing once the condition has failed.
#include "tegula/ops/autodiff.h"
#include "tegula/ops/common/elementwise.h"
#include "tegula/ops/common/regions.h"
#include "tegula/ops/control.h"

namespace tegula {

namespace {
struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    touch_all(a);
    std::vector<HostTensor> next;
    std::vector<TensorRef> in(a.in.begin(), a.in.end()), out;
    for (size_t i = 0; i < a.out.size(); ++i) {
      copy_into(a.out[i], a.in[i]);
      in[i] = a.out[i];
      next.push_back(copy_of(a.out[i]));
    }
    for (HostTensor& t : next) out.push_back(t.ref());
    uint8_t go = 0;
    const TensorRef test = contiguous_ref(&go, {DType::kBool, {}});
    for (int64_t trip = 0; trip < a.attrs().i("max_trips"); ++trip) {
      a.run_region(a, 0, in, std::span(&test, 1));
      if (!go) return;
      a.run_region(a, 1, in, out);
      for (size_t i = 0; i < out.size(); ++i) copy_into(a.out[i], out[i]);
    }
  }
};

std::vector<Var> decompose(Builder& b, const OpCall& c, std::span<const Var> in) {
  const auto n = static_cast<size_t>(c.attrs->i("n_carry"));
  const Function condition = c.region(0), body = c.region(1);  // copies: the module grows
  std::vector<Var> init = {cast(constant(b, 1, DType::kF32), DType::kBool)};
  init.insert(init.end(), in.begin(), in.begin() + static_cast<std::ptrdiff_t>(n));
  auto step = [&](Builder& g, Vars carry, Vars, Vars invariants) -> StepResult {
    auto now = [&](Vars state) {
      std::vector<Var> args(state.begin(), state.end());
      args.insert(args.end(), invariants.begin(), invariants.end());
      return args;
    };
    const Var go = logical_and(carry[0], inline_call(g, condition, now(carry.subspan(1)))[0]);
    StepResult r{{go}, {}};
    const auto next = cond(
        go, now(carry.subspan(1)), [&](Builder& h, Vars x) { return inline_call(h, body, x); },
        [&](Builder&, Vars x) { return std::vector<Var>(x.begin(), x.begin() + n); });
    r.carry.insert(r.carry.end(), next.begin(), next.end());
    return r;
  };
  auto out = scan(b, init, {}, in.subspan(n), step, {.length = c.attrs->i("max_trips")});
  return {out.carry.begin() + 1, out.carry.end()};
}

// Newton's square root: x = (x + a / x) / 2 while |x x - a| is large.
std::vector<FuncId> newton(Module& m) {
  const Type t = {DType::kF32, {}};
  Builder p(m, "far"), f(m, "improve");
  const Var x = p.param("x", t), a = p.param("a", t);
  p.result("go", ge(abs(x * x - a), 1e-6));
  const Var y = f.param("x", t), c = f.param("a", t);
  f.result("x", (y + c / y) * 0.5);
  const FuncId first = *p.finish_into_module();
  return {first, *f.finish_into_module()};
}

// Three trips whatever the values: planned and counted FLOPs agree.
std::vector<FuncId> always(Module& m) {
  const Type t = {DType::kF32, {3}};
  Builder p(m, "always"), f(m, "grow");
  const Var x = p.param("x", t);
  p.param("w", t);
  p.result("go", ge(reduce_sum(x * x, {0}), 0.0));
  const Var y = f.param("x", t), w = f.param("w", t);
  f.result("x", sin(y) * w);
  const FuncId first = *p.finish_into_module();
  return {first, *f.finish_into_module()};
}

constexpr RegionDef kRegions = {
    .parts = {{"the condition", RegionRole::kCondition}, {"the body", RegionRole::kBody}},
    .carries = "n_carry",
    .most_rounds = "max_trips"};
}  // namespace

constinit const OpDef while_loop_op = {
    .name = "while_loop",
    .formula = "while (condition(c, invariants)) c = body(c, invariants), at most max_trips times",
    .source = "Yu et al. 2018, sections 2 and 5.1",
    .group = "control",
    .attrs = {{"n_carry", AttrKind::kInt, true, "how many operands are carried"},
              {"max_trips", AttrKind::kInt, true, "at most so many rounds"}},
    .regions = &kRegions,
    .flops = region_flops,
    .decompose = decompose,
    .reference = reference_of<Ref>,
    .samples =
        [] {
          const SampleInput v = {{DType::kF32, {3}}};
          Sample three{"three trips", {v, v}, {{"n_carry", int64_t{1}}, {"max_trips", int64_t{3}}}};
          three.regions = always;
          Sample none = three, negative = three, misfit = three;
          none.name = "no trips", none.attrs.set("max_trips", int64_t{0});
          negative.name = "bound", negative.attrs.set("max_trips", int64_t{-1});
          negative.expect_error = "max_trips is -1";
          misfit.name = "another function", misfit.regions = newton;
          misfit.expect_error = "the condition is f32[], gets f32[3]";
          return std::vector<Sample>{three, none, negative, misfit};
        },
};

}  // namespace tegula
