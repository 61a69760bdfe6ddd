// What reductions share. Order: over trailing dims, 16 strided partials and a tree ("lane16");
// over any others, one ascending chain per output.
#pragma once

#include "tegula/ops/common/elementwise.h"

namespace tegula {

inline constexpr InlineList<AttrDef, 16> kReduceAttrs = {
    {"dims", AttrKind::kInts, true, "which dims, ascending"},
    {"keep", AttrKind::kBool, false, "keep them with extent 1"}};

inline bool is_reduced(const Attrs& a, int d) {
  for (int64_t r : a.ints("dims"))
    if (r == d) return true;
  return false;
}

// The operand's shape with reduced dims of extent 1.
inline Shape kept_shape(Var x, const Attrs& a) {
  Shape s = x.shape();
  for (int64_t d : a.ints("dims")) s[static_cast<int>(d)] = 1;
  return s;
}

template <Combine C>
Result<DimMap> reduce_dims(const OpCall& c) {
  const Shape& x = c.shape(0);
  int64_t previous = -1;
  for (int64_t d : c.attrs->ints("dims")) {
    if (d <= previous || d >= x.rank())
      return invalid_argument(cat(c.op->name, ": dims ", c.attrs->ints("dims"),
                                  " must ascend within the ", x.rank(), " dims of ", x));
    previous = d;
  }
  DimMap m;
  m.operands.emplace_back(), m.results.emplace_back(), m.result_shapes.emplace_back();
  for (int d = 0; d < x.rank(); ++d) {
    const auto f = static_cast<uint8_t>(m.add_factor(cat("d", d), x[d]));
    m.factors.back().whole = C == Combine::kNever && is_reduced(*c.attrs, d);
    m.operands[0].push_back({0, {{f, 1}}});
    if (!is_reduced(*c.attrs, d)) {
      m.results[0].push_back({0, {{f, 1}}});
      m.result_shapes[0].push_back(x[d]);
    } else if (c.attrs->flag("keep")) {
      m.results[0].emplace_back();
      m.result_shapes[0].push_back(1);
    }
  }
  m.finish(C);
  return m;
}

// Derivatives of max and min. Ties share equally, so that the rule is symmetric.
inline Var extremum_share(const Var& x, const Var& y, const Attrs& a) {
  const Var at = cast(eq(x, reshape(y, kept_shape(x, a))), x.dtype());
  return at / reduce_sum(at, a.ints("dims"), true);
}
inline Grads extremum_vjp(Builder&, const VjpCall& c) {
  const Var share = extremum_share(c.in[0], c.out[0], c.attrs());
  return {share * reshape(c.grad[0], kept_shape(c.in[0], c.attrs()))};
}
inline Grads extremum_jvp(Builder&, const JvpCall& c) {
  const Var share = extremum_share(c.in[0], c.out[0], c.attrs());
  return {reduce_sum(share * c.tangent[0], c.attrs().ints("dims"), c.attrs().flag("keep"))};
}

// Init<S>(dtype) is what an empty reduction gives.
template <auto Init, auto Step>
struct ReduceRef {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    Index extent{};
    std::vector<int64_t> inner;
    std::vector<int> inner_dims, outer_dims;
    for (int d = 0; d < a.in[0].rank; ++d) {
      if (is_reduced(a.attrs(), d)) {
        inner.push_back(a.in[0].shape[d]), inner_dims.push_back(d);
      } else {
        outer_dims.push_back(d);
      }
    }
    const bool keep = a.attrs().flag("keep");
    for_each_index(shape_of(a.out[0]), [&](const Index& o) {
      Index i = extent;
      for (size_t k = 0; k < outer_dims.size(); ++k)
        i[static_cast<size_t>(outer_dims[k])] = o[keep ? static_cast<size_t>(outer_dims[k]) : k];
      S acc = Init.template operator()<S>(a.out[0].dtype);
      for_each_index(inner, [&](const Index& r) {
        for (size_t k = 0; k < inner_dims.size(); ++k) i[static_cast<size_t>(inner_dims[k])] = r[k];
        const S x = a.load_at(0, i);
        acc = Step(acc, x);
      });
      a.store_at(0, acc, o);
    });
  }
};

inline std::vector<Sample> reduce_samples() {
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
