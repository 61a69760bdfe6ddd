#include "tegula/ops/common/reduce.h"

#include "tegula/ops/common/rules.h"

namespace tegula {

bool is_reduced(const Attrs& a, int d) {
  for (int64_t r : a.ints("dims"))
    if (r == d) return true;
  return false;
}

Shape kept_shape(const Var& x, const Attrs& a) {
  Shape s = x.shape();
  for (int64_t d : a.ints("dims")) s[static_cast<int>(d)] = 1;
  return s;
}

Result<DimMap> reduce_dims(const OpCall& c, Combine combine) {
  const Shape& x = c.shape(0);
  int64_t previous = -1;
  for (int64_t d : c.attrs->ints("dims")) {
    if (d <= previous || d >= x.rank())
      return invalid_argument(cat(c.op->name, ": dims ", c.attrs->ints("dims"),
                                  " must ascend within the ", x.rank(), " dims of ", x));
    previous = d;
  }
  MapMaker m(1);
  for (int d = 0; d < x.rank(); ++d) {
    const bool is_its = is_reduced(*c.attrs, d);
    const uint8_t f = m.factor(cat("d", d), x[d], combine == Combine::kNever && is_its);
    m.operand(0, f);
    if (!is_its)
      m.result(0, x[d], f);
    else if (c.attrs->flag("keep"))
      m.result(0, 1, DimExpr());
  }
  return std::move(m).done(combine);
}

Var extremum_share(const Var& x, const Var& y, const Attrs& a) {
  const Var at = cast(eq(x, reshape(y, kept_shape(x, a))), x.dtype());
  return at / reduce_sum(at, a.ints("dims"), true);
}
Grads extremum_vjp(Builder&, const VjpCall& c) {
  const Var share = extremum_share(c.in[0], c.out[0], c.attrs());
  return {share * reshape(c.grad[0], kept_shape(c.in[0], c.attrs()))};
}
Grads extremum_jvp(Builder&, const JvpCall& c) {
  const Var share = extremum_share(c.in[0], c.out[0], c.attrs());
  return {reduce_sum(share * c.tangent[0], c.attrs().ints("dims"), c.attrs().flag("keep"))};
}

ReduceLoops::ReduceLoops(const RefTensors& a) : keep_(a.attrs().flag("keep")) {
  for (int d = 0; d < a.in[0].rank; ++d) {
    if (is_reduced(a.attrs(), d)) {
      inner_.push_back(a.in[0].shape[d]), inner_dims_.push_back(static_cast<size_t>(d));
    } else {
      outer_dims_.push_back(static_cast<size_t>(d));
    }
  }
}
Index ReduceLoops::first(const Index& result) const {
  Index i{};
  for (size_t k = 0; k < outer_dims_.size(); ++k)
    i[outer_dims_[k]] = result[keep_ ? outer_dims_[k] : k];
  return i;
}
void ReduceLoops::set(Index& i, const Index& reduced) const {
  for (size_t k = 0; k < inner_dims_.size(); ++k) i[inner_dims_[k]] = reduced[k];
}

std::vector<Sample> reduce_samples() {
  const SampleInput x = {{DType::kF32, {3, 4, 5}}};
  auto over = [](std::vector<int64_t> dims, bool keep) {
    return Attrs{{"dims", std::move(dims)}, {"keep", keep}};
  };
  return {{"last", {x}, over({2}, false)},
          {"first, kept", {x}, over({0}, true)},
          {"two", {x}, over({0, 2}, false)},
          {"middle", {x}, over({1}, false)},
          {"all", {x}, over({0, 1, 2}, false)},
          {"not ascending", {x}, over({1, 0}, false), "must ascend"}};
}

}  // namespace tegula
