// y[i_order...] = x[i...]: dims in another order; a view.
#include "tegula/ops/common/rules.h"

namespace tegula {

namespace {
Result<DimMap> dims(const OpCall& c) {
  const auto& order = c.attrs->ints("order");
  const Shape& x = c.shape(0);
  std::vector<bool> seen(order.size(), false);
  bool valid = static_cast<int>(order.size()) == x.rank();
  for (int64_t d : order) {
    valid = valid && d >= 0 && d < x.rank() && !seen[d];
    if (valid) seen[d] = true;
  }
  if (!valid)
    return invalid_argument(cat("permute: order ", order, " is no permutation of the dims of ", x));
  MapMaker m(1);
  for (int d = 0; d < x.rank(); ++d) m.operand(0, m.factor(cat("d", d), x[d]));
  for (int64_t d : order) m.result(0, x[static_cast<int>(d)], static_cast<uint8_t>(d));
  return std::move(m).done();
}

struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const auto& order = a.attrs().ints("order");
    for_each_index(shape_of(a.out[0]), [&](const Index& i) {
      Index from{};
      for (size_t d = 0; d < order.size(); ++d) from[order[d]] = i[d];
      a.store_at(0, a.load_at(0, from), i);
    });
  }
};
}  // namespace

constinit const OpDef permute_op = view_op({
    .name = "permute",
    .formula = "y[i_order(0), i_order(1), ...] = x[i_0, i_1, ...]",
    .dims_fn = dims,
    .attrs = {{"order", AttrKind::kInts, true, "y's dim d is x's dim order[d]"}},
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      const auto& order = c.attrs().ints("order");
      std::vector<int64_t> back(order.size());
      for (size_t d = 0; d < order.size(); ++d) back[order[d]] = static_cast<int64_t>(d);
      return {permute(c.grad[0], back)};
    },
    .reference = reference_with_ints<Ref>,
    .samples =
        [] {
          const SampleInput x = {{DType::kF32, {2, 3, 4}}};
          return std::vector<Sample>{
              {"rotate", {x}, {{"order", std::vector<int64_t>{2, 0, 1}}}},
              {"repeated", {x}, {{"order", std::vector<int64_t>{0, 0, 1}}}, "no permutation"}};
        },
});

}  // namespace tegula
