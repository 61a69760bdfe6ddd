// Gradient of embedding: dtable[n, :] = the sum of grad[.., :] over ids[..] = n, in the order of
// positions, so that equal ids always add up alike.
#include "tegula/ops/common/gathering.h"
#include "tegula/ops/common/rules.h"
#include "tegula/ops/embedding.h"

namespace tegula {

namespace {
Result<DimMap> dims(const OpCall& c) {
  const auto& rows = c.attrs->dims("rows");
  if (rows.size() != 1 || c.shape(0).rank() == 0)
    return invalid_argument(cat("embedding_bwd: ", rows.size(), " row counts, grad ", c.in[0]));
  return gather_dims(c, {rows[0], c.shape(0)[c.shape(0).rank() - 1]}, c.shape(1), true);
}

// The sum of all rows with an id, in ascending order.
struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const Gathering g(a.attrs(), a.in[1].rank);
    const TensorRef& x = a.out[0];
    std::vector<S> sum(static_cast<size_t>(x.numel()) + 1, S(0.0));  // and what is thrown away
    for_each_index(shape_of(a.in[0]), [&](const Index& y) {
      const int64_t id = a.load_i_at(1, g.ids_index(y));
      const bool inside = id >= 0 && id < x.shape[g.dim];
      const auto to = inside ? static_cast<size_t>(a.row_major_at(x, g.x_index(y, id, x.rank)))
                             : sum.size() - 1;
      sum[to] += a.load_at(0, y);
    });
    size_t at = 0;
    for_each_index(shape_of(x), [&](const Index& i) { a.store_at(0, sum[at++], i); });
  }
};

Attrs localize(const OpCall& c, const DimMap& m, int factor, int64_t lo, int64_t hi) {
  Attrs a = *c.attrs;
  if (factor == m.find("n")) a.set("rows", std::vector<Dim>{hi - lo});
  return a;
}

std::vector<Sample> samples() {
  const Attrs rows{{"rows", std::vector<Dim>{5}}};
  auto ids = [](Shape s, std::vector<double> v) {
    return SampleInput{{DType::kI32, s}, 0, 4, std::move(v), false};
  };
  std::vector<Sample> s = {
      {"repeated", {{{DType::kF32, {2, 3, 4}}}, ids({2, 3}, {3, 0, 3, 4, 3, 0})}, rows},
      {"one", {{{DType::kF32, {4}}}, ids({}, {2})}, rows},
      {"none", {{{DType::kF32, {0, 4}}}, ids({0}, {})}, rows},
      {"bf16", {{{DType::kBF16, {3, 4}}}, ids({3}, {1, 1, 1})}, rows},
      {"out of range", {{{DType::kF32, {3, 4}}}, ids({3}, {1, -1, 5})}, rows},
      {"misfit", {{{DType::kF32, {3, 4}}}, ids({2}, {1, 2})}, rows, "expected [2,4]"}};
  return s;
}
}  // namespace

constinit const OpDef embedding_bwd_op = {
    .name = "embedding_bwd",
    .formula = "dtable[n, :] = the sum of grad[.., :] over ids[..] = n",
    .group = "indexing",
    .dims_fn = dims,
    .types = "F, i -> F",
    .attrs = {{"rows", AttrKind::kDims, true, "how many rows the table has"}},
    .flops = [](const OpCall& c) { return c.in[0].shape.numel(); },
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      return {embedding(c.grad[0], c.in[1]), Var()};
    },
    .jvp = jvp_of_first,
    .reference = reference_of<Ref>,
    .samples = samples,
    .localize = localize,
};

}  // namespace tegula
