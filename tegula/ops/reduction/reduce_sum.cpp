// y = the sum of x over `dims`.
#include "tegula/ops/common/reduce.h"

namespace tegula {

constinit const OpDef reduce_sum_op = reduction({
    .name = "reduce_sum",
    .formula = "y = the sum of x over dims",
    .dims_fn = reduce_dims<Combine::kSum>,
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      return {broadcast(reshape(c.grad[0], kept_shape(c.in[0], c.attrs())), c.in[0].shape())};
    },
    .tile = tile_reduce<tile::Op::kReduceSum>,
    .reference = reference_with_ints<
        ReduceRef<[]<class S>(DType) { return S(0.0); }, [](auto acc, auto x) { return acc + x; }>>,
    .is_linear = true,
    .is_rowwise = true,
});

}  // namespace tegula
