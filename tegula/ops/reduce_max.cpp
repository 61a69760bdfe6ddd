// y = the largest of x over `dims`.
#include "tegula/ops/reduce.h"

namespace tegula {

constinit const OpDef reduce_max_op = {
    .name = "reduce_max",
    .formula = "y = the largest of x over dims",
    .group = "reduction",
    .dims_fn = reduce_dims<Combine::kMax>,
    .types = "T -> T",
    .attrs = kReduceAttrs,
    .flops = [](const OpCall& c) { return c.in[0].shape.numel(); },
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      // Shared equally among ties, so that the rule is symmetric.
      const Shape kept = kept_shape(c.in[0], c.attrs());
      const Var at = cast(eq(c.in[0], reshape(c.out[0], kept)), c.in[0].dtype());
      const Var share = reshape(c.grad[0], kept) / reduce_sum(at, c.attrs().ints("dims"), true);
      return {at * share};
    },
    .tile = tile_reduce<tile::Op::kReduceMax>,
    .reference =
        reference_of<ReduceRef<-HUGE_VAL, [](auto acc, auto x) { return scalar::max(acc, x); }>>,
    .samples = reduce_samples,
    .is_reduction = true,
};

}  // namespace tegula
