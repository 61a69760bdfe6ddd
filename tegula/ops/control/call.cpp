// y = f(x…): a function of the module as one node. Its gradient calls the function's pullback,
// which computes f again from x: a call is a checkpoint.
#include "tegula/ops/autodiff.h"
#include "tegula/ops/common/elementwise.h"
#include "tegula/ops/common/regions.h"

namespace tegula {

namespace {
struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    touch_all(a);
    a.run_region(a, 0, a.in, a.out);
  }
};

std::vector<FuncId> norm(Module& m) {
  Builder b(m, "norm");
  const Var x = b.param("x", {DType::kF32, {3, 4}}), w = b.param("w", {DType::kF32, {4}});
  const Var y = x * w;
  b.result("y", y), b.result("norm", reduce_sum(y * y, {1}));
  return {*b.finish_into_module()};
}

constexpr RegionDef kRegions = {.parts = {{"the function", RegionRole::kBody}}};
}  // namespace

constinit const OpDef call_op = {
    .name = "call",
    .formula = "y = f(x)",
    .group = "control",
    .regions = &kRegions,
    .flops = region_flops,
    .vjp = [](Builder& b, const VjpCall& c) -> Grads {
      auto made = region_pullback(b, c.call->regions[0]);
      if (!made.ok()) return b.fail(std::move(made).error()), Grads(c.in.size());
      return spread_floats(c.in, b.emit_n(call_op, {}, join_valid(c.in, c.grad), {*made}));
    },
    .jvp = [](Builder& b, const JvpCall& c) -> Grads {
      auto made = region_pushforward(b, c.call->regions[0], c.tangent);
      if (!made.ok()) return b.fail(std::move(made).error()), Grads(c.out.size());
      return spread_floats(c.out, b.emit_n(call_op, {}, join_valid(c.in, c.tangent), {*made}));
    },
    .reference = reference_of<Ref>,
    .samples =
        [] {
          Sample plain{"two results", {{{DType::kF32, {3, 4}}}, {{DType::kF32, {4}}}}, {}};
          plain.regions = norm;
          Sample misfit = plain;
          misfit.name = "another type", misfit.in[1].type.shape[0] = 1;
          misfit.expect_error = "parameter 1 (w)";
          return std::vector<Sample>{plain, misfit};
        },
};

}  // namespace tegula
