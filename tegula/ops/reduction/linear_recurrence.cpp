// y_i = a_i·y_{i-1} + b_i along one dim, from 0: the cumulative family's general member. Its
// gradient is the same recurrence from the other end, h_i = g_i + a_{i+1}·h_{i+1}, with db = h and
// da_i = h_i·y_{i-1}: no division, so zeros in a are nothing special.
#include "tegula/ops/common/lines.h"

namespace tegula {

namespace {
struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const bool floats = is_float(a.out[0].dtype);
    S y = S(0.0);
    uint64_t whole = 0;
    for_each_in_lines(a, [&](const Index& i, int64_t j) {
      if (floats) {
        const S b = a.load_at(1, i), next = scalar::fma(a.load_at(0, i), y, b);
        a.store_at(0, y = j == 0 ? b : next, i);
        return;
      }
      const auto b = static_cast<uint64_t>(a.load_i_at(1, i));
      const uint64_t next = static_cast<uint64_t>(a.load_i_at(0, i)) * whole + b;
      if constexpr (std::is_same_v<S, Counted>) Counted::flops() += 2;
      a.store_i_at(0, static_cast<int64_t>(whole = j == 0 ? b : next), i);
    });
  }
};
}  // namespace

Var linear_recurrence(Var a, Var b, int dim, bool reverse, Loc loc) {
  const bool are_scalars = !a.is_poison() && b.valid() && a.rank() == 0 && a.type() == b.type();
  if (are_scalars && (dim == 0 || dim == -1)) return b;
  if (dim < 0) dim += a.rank();
  return a.builder().emit(linear_recurrence_op, {{"dim", int64_t{dim}}, {"reverse", reverse}},
                          {a, b}, loc);
}

// The first element is the first summand; every other is a factor.
Var cumprod(Var x, int dim, bool reverse, Loc loc) {
  if (x.rank() == 0 && (dim == 0 || dim == -1)) return x;
  if (dim < 0) dim += x.rank();
  Builder& b = x.builder();
  if (dim < 0 || dim >= x.rank())
    return b.fail(invalid_argument(cat("cumprod: dim ", dim, " of ", x.type()), loc));
  const Var place = iota(b, x.shape(), dim, DType::kI64, loc);
  const Var first = reverse ? eq(place, sub(extent(x, dim, DType::kI64, loc), 1.0, loc), loc)
                            : eq(place, 0.0, loc);
  return linear_recurrence(x, select(first, x, zeros_like(x, loc), loc), dim, reverse, loc);
}

constinit const OpDef linear_recurrence_op = {
    .name = "linear_recurrence",
    .formula = "y_i = a_i y_(i-1) + b_i along one dim, from 0 (in reverse: from the end)",
    .source = "Blelloch 1990, section 1.4",
    .group = "reduction",
    .dims_fn = [](const OpCall& c) { return line_dims(c, "..., ... -> ..."); },
    .types = "T, T -> T",
    .attrs = {kLineDim, kLineReverse},
    .flops = [](const OpCall& c) { return 2 * c.in[0].shape.numel(); },
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      const Attrs& a = c.attrs();
      const Var h = linear_recurrence(shifted(c.in[0], a, 0, true), c.grad[0],
                                      static_cast<int>(a.i("dim")), !a.flag("reverse"));
      return {h * shifted(c.out[0], a, 0), h};
    },
    .jvp = [](Builder& b, const JvpCall& c) -> Grads {
      Var t = c.tangent[1];
      if (c.tangent[0].valid()) {
        const Var of_a = c.tangent[0] * shifted(c.out[0], c.attrs(), 0);
        t = t.valid() ? t + of_a : of_a;
      }
      return {t.valid() ? b.emit(linear_recurrence_op, c.attrs(), {c.in[0], t}) : Var()};
    },
    .reference = reference_of<Ref>,
    .samples = [] { return line_samples(2, -1, 1); },
};

}  // namespace tegula
