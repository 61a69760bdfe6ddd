// y = x in another dtype. To a float it rounds to nearest even; e4m3 takes ±448 for what it cannot
// hold. A float becomes an integer truncated, held at the ends of the range, and 0 where it is NaN;
// an integer becomes another by its low bits (it wraps). As bool: x ≠ 0.
#include "tegula/ops/common/rules.h"

namespace tegula {

namespace {
struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const bool exact_ints = !is_float(a.in[0].dtype) && !is_float(a.out[0].dtype);
    for_each_index(shape_of(a.out[0]), [&](const Index& i) {
      if (exact_ints) {
        a.store_i_at(0, a.load_i_at(0, i), i);
      } else {
        a.store_at(0, a.load_at(0, i), i);
      }
    });
  }
};
}  // namespace

constinit const OpDef cast_op = elementwise({
    .name = "cast",
    .formula = "y = x as dtype: floats round, float to integer truncates and saturates (NaN: 0), "
               "integer to integer wraps",
    .types_fn = [](const OpCall& c) -> Result<std::vector<DType>> {
      if (c.in.size() != 1) return invalid_argument("cast: takes one operand");
      return std::vector{c.attrs->dtype("dtype")};
    },
    .attrs = {{"dtype", AttrKind::kDType, true, "target type"}},
    .flops = per_element<0>,
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      if (!is_float(c.in[0].dtype()) || !is_float(c.out[0].dtype())) return {Var()};
      return {cast(c.grad[0], c.in[0].dtype())};
    },
    .tile = [](tile::Builder& b, const OpCall& c,
               std::span<const tile::Reg> in) { return b.cast(in[0], c.out[0].dtype); },
    .reference = reference_of<Ref>,
    .samples =
        [] {
          std::vector<Sample> s;
          for (DType from : kAllDTypes)
            for (DType to : kAllDTypes)
              if (from != to)
                s.push_back({cat(from, " to ", to),
                             {{{from, {5}},
                               from == DType::kBool || from == DType::kU8 ? 0.0 : -90.0,
                               from == DType::kBool ? 1.0 : 90.0}},
                             {{"dtype", to}},
                             "",
                             is_float(from) && is_float(to)});
          return s;
        },
});

}  // namespace tegula
