// y[b.., p.., i.., q..] = x[b.., p.., ids[b.., i..], q..]; zero where the id is out of range.
#include "tegula/ops/common/gathering.h"
#include "tegula/ops/common/rules.h"

namespace tegula {

namespace {
Result<DimMap> dims(const OpCall& c) { return gather_dims(c, c.shape(0), c.shape(1), false); }

std::vector<Sample> samples() {
  const SampleInput x = {{DType::kF32, {3, 4, 2}}};
  auto ids = [](Shape s, std::vector<double> v) {
    return SampleInput{{DType::kI32, s}, 0, 2, std::move(v), false};
  };
  auto at = [](int64_t dim, int64_t batch) { return Attrs{{"dim", dim}, {"batch", batch}}; };
  std::vector<Sample> s = {
      {"rows", {x, ids({2}, {2, 0})}, at(0, 0)},
      {"middle", {x, ids({2, 2}, {2, 0, 3, 1})}, at(1, 0)},
      {"along the last",
       {x, ids({3, 4, 2}, {0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0,  //
                           0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0})},
       at(2, 2)},
      {"a batch dim", {x, ids({3, 2}, {0, 3, 1, 2, 2, 0})}, at(1, 1)},
      {"batch not before dim", {x, ids({3, 2}, {0, 1, 1, 0, 0, 1})}, at(2, 1)},
      {"integers", {{{DType::kI64, {5}}, -9, 9}, ids({3}, {4, 0, 2})}, at(0, 0)},
      {"out of range", {x, ids({4}, {1, 1, -1, 3})}, at(0, 0)},
      {"batch differs", {x, ids({2, 2}, {0, 1, 0, 1})}, at(1, 1), "batch dim 0 is 3"},
      {"past the rank", {x, ids({2}, {0, 1})}, at(3, 0), "dim 3"}};
  s[6].cost_bound = kIdsDecide;
  return s;
}
}  // namespace

Var gather(Var x, Var ids, int dim, int batch, Loc loc) {
  if (dim < 0) dim += x.rank();
  return x.builder().emit(gather_op, {{"dim", int64_t{dim}}, {"batch", int64_t{batch}}}, {x, ids},
                          loc);
}

constinit const OpDef gather_op = {
    .name = "gather",
    .formula = "y[b.., p.., i.., q..] = x[b.., p.., ids[b.., i..], q..]",
    .group = "indexing",
    .dims_fn = dims,
    .types = "T, i -> T",
    .attrs = {{"dim", AttrKind::kInt, true, "the indexed dim of x"},
              {"batch", AttrKind::kInt, false, "leading dims that x and ids share"}},
    .bytes = gather_bytes,
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      const Gathering g(c.attrs(), c.in[1].rank());
      return {scatter_add(c.grad[0], c.in[1], g.dim, c.in[0].dim(g.dim), g.batch), Var()};
    },
    .jvp = jvp_of_first,
    .reference = reference_with_ints<GatherRef>,
    .samples = samples,
};

}  // namespace tegula
