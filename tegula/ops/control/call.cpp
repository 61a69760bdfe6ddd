// y = f(x…): a function of the module as one node. Its gradient calls the function's pullback,
// which computes f again from x: a call is a checkpoint.
#include "tegula/ops/autodiff.h"
#include "tegula/ops/common/regions.h"
#include "tegula/ops/elementwise.h"

namespace tegula {

namespace {
Result<std::vector<Type>> results(const OpCall& c) {
  if (c.regions.size() != 1)
    return invalid_argument(cat("call: needs one region, has ", c.regions.size()));
  TEGULA_TRY(check_takes(c, "the function", c.region(0), c.in));
  return result_types(c.region(0));
}

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
}  // namespace

constinit const OpDef call_op = {
    .name = "call",
    .formula = "y = f(x)",
    .group = "control",
    .dims_fn = [](const OpCall& c) -> Result<DimMap> {
      return whole_map(c, TEGULA_TRY(results(c)));
    },
    .types_fn = [](const OpCall& c) -> Result<std::vector<DType>> {
      return dtypes_of(TEGULA_TRY(results(c)));
    },
    .flops =
        [](const OpCall& c) {
          return flops_of(*c.module, c.region(0), extents_from(c, c.region(0), 0));
        },
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
