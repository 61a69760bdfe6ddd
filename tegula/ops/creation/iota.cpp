// y[i0, i1, ...] = i_dim: the index along one dim.
#include "tegula/ops/common/rules.h"

namespace tegula {

namespace {
Result<DimMap> dims(const OpCall& c) {
  if (c.attrs->dims("shape").size() > kMaxRank) return unsupported("iota: more than 8 dims");
  MapMaker m(0);
  int i = 0;
  for (const Dim& d : c.attrs->dims("shape")) m.result(0, d, m.factor(cat("d", i++), d));
  return std::move(m).done();
}

struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const auto dim = static_cast<size_t>(a.attrs().i("dim"));
    const int64_t start = a.attrs().template get_or<int64_t>("start", 0);
    for_each_index(shape_of(a.out[0]), [&](const Index& i) { a.store_i_at(0, start + i[dim], i); });
  }
};

Attrs localize(const OpCall& c, const DimMap&, int factor, int64_t lo, int64_t hi) {
  Attrs a = resized(c, "shape", factor, lo, hi);
  if (factor == a.i("dim")) a.set("start", a.get_or<int64_t>("start", 0) + lo);
  return a;
}
}  // namespace

constinit const OpDef iota_op = {
    .name = "iota",
    .formula = "y[i0, i1, ...] = start + i_dim",
    .group = "creation",
    .dims_fn = dims,
    .types_fn = named_dtype,
    .attrs = {{"shape", AttrKind::kDims, true, "result shape"},
              {"dim", AttrKind::kInt, true, "dim that counts"},
              {"start", AttrKind::kInt, false, "value at index 0"},
              {"dtype", AttrKind::kDType, true, "element type"}},
    .check = [](const OpCall& c) -> Status {
      const int64_t d = c.attrs->i("dim");
      if (d < 0 || d >= c.out[0].shape.rank())
        return invalid_argument(
            cat("iota: dim ", d, " of a rank-", c.out[0].shape.rank(), " shape"));
      return {};
    },
    .reference = reference_of<Ref>,
    .samples =
        [] {
          const std::vector<Dim> shape = {3, 4};
          return std::vector<Sample>{
              {"rows", {}, {{"shape", shape}, {"dim", int64_t{0}}, {"dtype", DType::kI64}}},
              {"columns", {}, {{"shape", shape}, {"dim", int64_t{1}}, {"dtype", DType::kF32}}},
              {"past the rank",
               {},
               {{"shape", shape}, {"dim", int64_t{2}}, {"dtype", DType::kF32}},
               "dim 2"}};
        },
    .localize = localize,
};

}  // namespace tegula
