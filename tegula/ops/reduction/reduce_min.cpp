// y = the smallest of x over `dims`; of none the greatest value of its type (floats: inf). NaN
// wins.
#include "tegula/ops/common/reduce.h"

namespace tegula {

constinit const OpDef reduce_min_op = reduction({
    .name = "reduce_min",
    .formula = "y = the smallest of x over dims; of none the greatest value of its type",
    .dims_fn = reduce_dims<Combine::kMin>,
    .vjp = extremum_vjp,
    .jvp = extremum_jvp,
    .tile = tile_reduce<tile::Op::kReduceMin>,
    .reference =
        reference_with_ints<ReduceRef<[]<class S>(DType t) { return greatest<S>(t); },
                                      [](auto acc, auto x) { return scalar::min(acc, x); }>>,
});

}  // namespace tegula
