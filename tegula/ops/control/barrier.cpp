// The first n operands, unchanged, but only once every operand is known. Optimisations do not see
// through it: CSE and reordering would undo rematerialisation otherwise (it happened to others).
#include "tegula/ops/common/elementwise.h"

namespace tegula {

namespace {
Result<DimMap> dims(const OpCall& c) {
  DimMap m;
  const int64_t n = c.attrs->i("n");
  if (n < 0 || n > static_cast<int64_t>(c.in.size()))
    return invalid_argument(cat("barrier: n is ", n, ", operands ", c.in.size()));
  for (size_t k = 0; k < c.in.size(); ++k) {
    auto& operand = m.operands.emplace_back();
    for (int d = 0; d < c.in[k].shape.rank(); ++d) {
      const auto f = static_cast<uint8_t>(m.add_factor(cat("x", k, "_", d), c.in[k].shape[d]));
      m.factors.back().whole = true;
      operand.push_back({0, {{f, 1}}});
    }
    if (static_cast<int64_t>(k) < n) {
      m.results.push_back(operand);
      m.result_shapes.push_back(c.in[k].shape);
    }
  }
  m.finish();
  return m;
}

struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    for (size_t k = 0; k < a.out.size(); ++k)
      for_each_index(shape_of(a.out[k]), [&](const Index& i) {
        if (is_float(a.out[k].dtype)) {
          a.store_at(k, a.load_at(k, i), i);
        } else {
          a.store_i_at(k, a.load_i_at(k, i), i);
        }
      });
  }
};
}  // namespace

constinit const OpDef barrier_op = {
    .name = "barrier",
    .formula = "y_k = x_k for k < n, after all operands",
    .group = "control",
    .dims_fn = dims,
    .types_fn = [](const OpCall& c) -> Result<std::vector<DType>> {
      std::vector<DType> t;
      for (int64_t k = 0; k < c.attrs->i("n") && k < static_cast<int64_t>(c.in.size()); ++k)
        t.push_back(c.in[static_cast<size_t>(k)].dtype);
      return t;
    },
    .attrs = {{"n", AttrKind::kInt, true, "how many operands pass through"}},
    .bytes = [](const OpCall&) { return Bytes{}; },
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      Grads g(c.in.size());
      for (size_t k = 0; k < c.out.size(); ++k) g[k] = c.grad[k];
      return g;
    },
    .jvp = [](Builder& b, const JvpCall& c) -> Grads {
      std::vector<Var> t;
      for (size_t k = 0; k < c.in.size(); ++k)
        t.push_back(c.tangent[k].valid() ? c.tangent[k] : zeros_like(c.in[k]));
      return b.emit_n(barrier_op, c.attrs(), t);
    },
    .reference = reference_of<Ref>,
    .samples =
        [] {
          return std::vector<Sample>{
              {"one of two", {{{DType::kF32, {3}}}, {{DType::kF32, {2, 2}}}}, {{"n", int64_t{1}}}}};
        },
    .is_view = true,
    .has_effect = true,
};

}  // namespace tegula
