// y = x with y[clamp(start) + i] = update[i]: how a KV cache grows, in place when x is donated.
#include "tegula/ops/common/rules.h"
#include "tegula/ops/dynamic_slice.h"

namespace tegula {

namespace {

Result<DimMap> dims(const OpCall& c) {
  const Shape& x = c.shape(0);
  if (c.in.size() < 2 || c.shape(1).rank() != x.rank() ||
      c.in.size() != 2 + static_cast<size_t>(x.rank()))
    return invalid_argument(cat("dynamic_update_slice: x ", x, " with ", c.in.size(),
                                " operands: x, update of the same rank, and a start per dim"));
  MapMaker m(c.in.size());
  for (int d = 0; d < x.rank(); ++d) {
    const Dim n = c.shape(1)[d];
    if (!n.is_const() && !x[d].is_const() && n.symbol != x[d].symbol)
      return unsupported(cat("dynamic_update_slice: an update of ", n, " in dim ", d, " of ", x,
                             ": nothing says that it lies within it at every extent"));
    if (n.bound() > x[d].bound())
      return invalid_argument(
          cat("dynamic_update_slice: the update's dim ", d, " is ", n, ", x's ", x[d]));
    const bool part = !(n == x[d]);
    const uint8_t f = m.factor(cat("d", d), x[d], part);
    m.operand(0, f);
    m.operand(1, part ? MapMaker::whole() : MapMaker::plain(f));
    m.result(0, x[d], f);
  }
  return std::move(m).done();
}

struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    // Written over x: what lies outside the update is there already.
    const bool in_place = a.in[0].data == a.out[0].data;
    if (!in_place)
      for_each_index(shape_of(a.out[0]),
                     [&](const Index& i) { a.store_at(0, a.load_at(0, i), i); });
    for_each_index(shape_of(a.in[1]), [&](const Index& i) {
      Index to = i;
      for (int d = 0; d < a.in[0].rank; ++d)
        to[d] += clamped_start(a.load_i(static_cast<size_t>(d) + 2), a.dim(0, d), a.dim(1, d));
      a.store_at(0, a.load_at(1, i), to);
    });
  }
};

}  // namespace

Var dynamic_update_slice(Var x, Var update, std::span<const Var> starts, Loc loc) {
  std::vector<Var> in = {x, update};
  in.insert(in.end(), starts.begin(), starts.end());
  return x.builder().emit_n(dynamic_update_slice_op, {}, in, {}, loc)[0];
}

constinit const OpDef dynamic_update_slice_op = {
    .name = "dynamic_update_slice",
    .formula = "y = x, then y[start + i] = update[i]",
    .group = "movement",
    .dims_fn = dims,
    .types = "T, T, i, ... -> T",
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      Grads g(c.in.size());
      const auto starts = c.in.subspan(2);
      g[0] = dynamic_update_slice(c.grad[0], zeros_like(c.in[1]), starts);
      g[1] = dynamic_slice(c.grad[0], starts, c.in[1].shape());
      return g;
    },
    .jvp = [](Builder&, const JvpCall& c) -> Grads {
      auto or_zero = [&](size_t k) {
        return c.tangent[k].valid() ? c.tangent[k] : zeros_like(c.in[k]);
      };
      return {dynamic_update_slice(or_zero(0), or_zero(1), c.in.subspan(2))};
    },
    .reference = reference_with_ints<Ref>,
    .samples =
        [] {
          auto at = [](double v) { return SampleInput{{DType::kI64, {}}, v, v}; };
          const SampleInput x{{DType::kF32, {4, 6}}}, u{{DType::kF32, {2, 3}}},
              row{{DType::kF32, {1, 6}}};
          return std::vector<Sample>{{"inside", {x, u, at(1), at(2)}, {}},
                                     {"clamped", {x, u, at(9), at(-5)}, {}},
                                     {"a row", {x, row, at(2), at(0)}, {}},
                                     {"too large", {u, x, at(0), at(0)}, {}, "the update's dim"}};
        },
    .aliases = {{0, 0}},
};

}  // namespace tegula
