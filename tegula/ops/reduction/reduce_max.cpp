// y = the largest of x over `dims`; of none the least value of its type (floats: -inf). NaN wins.
#include "tegula/ops/common/reduce.h"

namespace tegula {

constinit const OpDef reduce_max_op = reduction({
    .name = "reduce_max",
    .formula = "y = the largest of x over dims; of none the least value of its type",
    .dims_fn = reduce_dims<Combine::kMax>,
    .vjp = extremum_vjp,
    .jvp = extremum_jvp,
    .tile = tile_reduce<tile::Op::kReduceMax>,
    .reference =
        reference_with_ints<ReduceRef<[]<class S>(DType t) { return least<S>(t); },
                                      [](auto acc, auto x) { return scalar::max(acc, x); }>>,
});

}  // namespace tegula
