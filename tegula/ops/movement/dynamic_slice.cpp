// y[i] = x[clamp(start) + i]: a part of x whose place is known at run time.
#include "tegula/ops/dynamic_slice.h"

#include "tegula/ops/common/rules.h"

namespace tegula {

namespace {

Result<DimMap> dims(const OpCall& c) {
  const auto& size = c.attrs->dims("size");
  const Shape& x = c.shape(0);
  if (static_cast<int>(size.size()) != x.rank() || c.in.size() != 1 + size.size())
    return invalid_argument(cat("dynamic_slice: ", x, " with sizes ", size, " and ",
                                c.in.size() - 1, " starts: one each per dim"));
  MapMaker m(c.in.size());
  for (int d = 0; d < x.rank(); ++d) {
    const Dim n = size[d];
    if (!n.is_const() && !x[d].is_const() && n.symbol != x[d].symbol)
      return unsupported(cat("dynamic_slice: ", n, " elements of dim ", d, " of ", x,
                             ": nothing says that they lie within it at every extent"));
    if (n.bound() > x[d].bound())
      return invalid_argument(cat("dynamic_slice: size ", n, " of dim ", d, " exceeds ", x[d]));
    const bool cut = !(n == x[d]);
    const uint8_t f = m.factor(cat("d", d), n, cut);
    m.operand(0, cut ? MapMaker::whole() : MapMaker::plain(f));
    m.result(0, n, f);
  }
  return std::move(m).done();
}

struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    Index start{};
    for (int d = 0; d < a.in[0].rank; ++d)
      start[d] = clamped_start(a.load_i(static_cast<size_t>(d) + 1), a.dim(0, d), a.out_dim(0, d));
    for_each_index(shape_of(a.out[0]), [&](const Index& i) {
      Index from = i;
      for (size_t d = 0; d < kMaxRank; ++d) from[d] += start[d];
      a.store_at(0, a.load_at(0, from), i);
    });
  }
};

}  // namespace

Var dynamic_slice(Var x, std::span<const Var> starts, const Shape& size, Loc loc) {
  std::vector<Var> in = {x};
  in.insert(in.end(), starts.begin(), starts.end());
  return x.builder().emit_n(dynamic_slice_op,
                            {{"size", std::vector<Dim>(size.begin(), size.end())}}, in, {}, loc)[0];
}

constinit const OpDef dynamic_slice_op = {
    .name = "dynamic_slice",
    .formula = "y[i] = x[start + i]",
    .group = "movement",
    .dims_fn = dims,
    .types = "T, i, ... -> T",
    .attrs = {{"size", AttrKind::kDims, true, "result shape"}},
    .bytes =
        [](const OpCall& c) {
          Bytes b{c.out[0].bytes(), c.out[0].bytes()};
          for (size_t k = 1; k < c.in.size(); ++k) b.read += c.in[k].bytes();
          return b;
        },
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      Grads g(c.in.size());
      g[0] = dynamic_update_slice(zeros_like(c.in[0]), c.grad[0], c.in.subspan(1));
      return g;
    },
    .jvp = jvp_of_first,
    .reference = reference_with_ints<Ref>,
    .samples =
        [] {
          auto at = [](double v) { return SampleInput{{DType::kI64, {}}, v, v}; };
          const SampleInput x{{DType::kF32, {4, 6}}};
          auto size = [](int64_t a, int64_t b) { return Attrs{{"size", std::vector<Dim>{a, b}}}; };
          return std::vector<Sample>{{"inside", {x, at(1), at(2)}, size(2, 3)},
                                     {"clamped", {x, at(9), at(-5)}, size(2, 3)},
                                     {"rows", {x, at(2), at(0)}, size(1, 6)},
                                     {"too large", {x, at(0), at(0)}, size(5, 6), "exceeds"}};
        },
    .localize = [](const OpCall& c, const DimMap&, int factor, int64_t lo,
                   int64_t hi) { return resized(c, "size", factor, lo, hi); },
};

}  // namespace tegula
