// y[.., :] = table[ids[..], :]; an id out of range gives a row of zeros, so that a table cut by
// rows gives partial results that sum up.
#include "tegula/ops/embedding.h"

#include "tegula/ops/common/gathering.h"

namespace tegula {

namespace {
Result<DimMap> dims(const OpCall& c) {
  if (c.shape(0).rank() != 2)
    return invalid_argument(cat("embedding: the table is ", c.in[0], ", must have 2 dims"));
  return gather_dims(c, c.shape(0), c.shape(1), false);
}

std::vector<Sample> samples() {
  const SampleInput table = {{DType::kF32, {7, 3}}};
  auto ids = [](Shape s, std::vector<double> v, DType t = DType::kI32) {
    return SampleInput{{t, s}, 0, 6, std::move(v), false};
  };
  std::vector<Sample> s = {
      {"distinct", {table, ids({2, 2}, {3, 0, 6, 2})}, {}},
      {"one", {table, ids({}, {4}, DType::kI64)}, {}},
      {"none", {table, ids({0}, {})}, {}},
      {"bf16", {{{DType::kBF16, {7, 3}}}, ids({2}, {5, 1})}, {}},
      {"more ids than rows", {table, ids({9}, {3, 0, 6, 2, 1, 4, 5, 3, 3})}, {}},
      {"repeated, out of range", {table, ids({4}, {3, -1, 3, 7})}, {}},
      {"float ids", {table, {{DType::kF32, {2}}}}, {}, "expected i32 or i64"},
      {"3 dims", {{{DType::kF32, {2, 3, 4}}}, ids({2}, {0, 1})}, {}, "must have 2 dims"}};
  s[5].cost_bound = kIdsDecide;
  return s;
}
}  // namespace

Var embedding(Var table, Var ids, Loc loc) {
  return table.builder().emit(embedding_op, {}, {table, ids}, loc);
}

Var embedding(Var table, Var ids, int64_t padding_idx, Loc loc) {
  const Var none = fill(ids.builder(), -1, ids.type(), loc);
  return embedding(table, select(eq(ids, static_cast<double>(padding_idx), loc), none, ids, loc),
                   loc);
}

constinit const OpDef embedding_op = {
    .name = "embedding",
    .formula = "y[.., :] = table[ids[..], :]",
    .group = "indexing",
    .dims_fn = dims,
    .types = "T, i -> T",
    .bytes = gather_bytes,
    .vjp = [](Builder& b, const VjpCall& c) -> Grads {
      const std::vector<Dim> rows = {c.in[0].dim(0)};
      return {b.emit(embedding_bwd_op, {{"rows", rows}}, {c.grad[0], c.in[1]}), Var()};
    },
    .jvp = [](Builder&, const JvpCall& c) -> Grads { return {embedding(c.tangent[0], c.in[1])}; },
    .reference = reference_of<GatherRef>,
    .samples = samples,
};

}  // namespace tegula
