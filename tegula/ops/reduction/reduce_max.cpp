// y = the largest of x over `dims`; of none the least value of its type (floats: -inf). NaN wins.
#include "tegula/ops/common/reduce.h"

namespace tegula {

constinit const OpDef reduce_max_op = {
    .name = "reduce_max",
    .formula = "y = the largest of x over dims; of none the least value of its type",
    .group = "reduction",
    .dims_fn = reduce_dims<Combine::kMax>,
    .types = "T -> T",
    .attrs = kReduceAttrs,
    .flops = [](const OpCall& c) { return c.in[0].shape.numel(); },
    .vjp = extremum_vjp,
    .jvp = extremum_jvp,
    .tile = tile_reduce<tile::Op::kReduceMax>,
    .reference =
        reference_with_ints<ReduceRef<[]<class S>(DType t) { return least<S>(t); },
                                      [](auto acc, auto x) { return scalar::max(acc, x); }>>,
    .samples = reduce_samples,
    .is_reduction = true,
};

}  // namespace tegula
