// y = x repeated along new or extent-1 dims, aligned at the right (NumPy); a stride-0 view.
#include "tegula/ops/common/rules.h"

namespace tegula {

namespace {
Result<DimMap> dims(const OpCall& c) {
  const auto& shape = c.attrs->dims("shape");
  const Shape& x = c.shape(0);
  const int lead = static_cast<int>(shape.size()) - x.rank();
  bool valid = lead >= 0 && shape.size() <= kMaxRank;
  for (int d = 0; valid && d < x.rank(); ++d)
    valid = x[d] == Dim(1) || x[d] == shape[static_cast<size_t>(d) + static_cast<size_t>(lead)];
  if (!valid) return invalid_argument(cat("broadcast: ", x, " does not broadcast to ", shape));
  MapMaker m(1);
  for (int d = 0; d < static_cast<int>(shape.size()); ++d) {
    const Dim size = shape[d];
    const uint8_t f = m.factor(cat("d", d), size);
    m.result(0, size, f);
    if (d >= lead) m.operand(0, x[d - lead] == size ? MapMaker::plain(f) : DimExpr());
  }
  return std::move(m).done();
}

struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const int lead = a.out[0].rank - a.in[0].rank;
    for_each_index(shape_of(a.out[0]), [&](const Index& i) {
      Index from{};
      for (int d = 0; d < a.in[0].rank; ++d)
        from[d] = a.in[0].shape[d] == 1 ? 0 : i[static_cast<size_t>(d) + static_cast<size_t>(lead)];
      a.store_at(0, a.load_at(0, from), i);
    });
  }
};
}  // namespace

constinit const OpDef broadcast_op = view_op({
    .name = "broadcast",
    .formula = "y[.., i, ..] = x[.., 0 or i, ..]",
    .dims_fn = dims,
    .attrs = {{"shape", AttrKind::kDims, true, "result shape"}},
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      return {reduce_to(c.grad[0], c.in[0].shape())};
    },
    .reference = reference_with_ints<Ref>,
    .samples =
        [] {
          const std::vector<Dim> shape = {2, 3, 4};
          return std::vector<Sample>{
              {"row", {{{DType::kF32, {4}}}}, {{"shape", shape}}},
              {"column", {{{DType::kF32, {3, 1}}}}, {{"shape", shape}}},
              {"scalar", {{{DType::kF32, {}}}}, {{"shape", shape}}},
              {"misfit", {{{DType::kF32, {3}}}}, {{"shape", shape}}, "does not broadcast"}};
        },
    .localize = [](const OpCall& c, const DimMap&, int factor, int64_t lo,
                   int64_t hi) { return resized(c, "shape", factor, lo, hi); },
    .is_rowwise = true,
});

}  // namespace tegula
