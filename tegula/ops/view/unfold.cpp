// y[.., o, k, ..] = x[.., stride o + dilation k, ..]: the windows of a dim as a view, one element
// of x at many places. With it a convolution is a contraction that moves no bytes first.
#include "tegula/base/saturating.h"
#include "tegula/ops/common/rules.h"
#include "tegula/ops/conv.h"
#include "tegula/ops/pad.h"

namespace tegula {

namespace {
Result<DimMap> dims(const OpCall& c) {
  const Shape& x = c.shape(0);
  const int64_t dim = c.attrs->i("dim"), kernel = c.attrs->i("kernel");
  const int64_t stride = c.attrs->i("stride"), dilation = c.attrs->i("dilation");
  const auto& sizes = c.attrs->dims("size");
  if (dim < 0 || dim >= x.rank() || sizes.size() != 1 || kernel < 1 || stride < 1 || dilation < 1)
    return invalid_argument(cat("unfold: dim ", dim, ", kernel ", kernel, ", stride ", stride,
                                ", dilation ", dilation, " of ", x));
  const Dim whole = x[static_cast<int>(dim)];
  if (!sizes[0].is_const() && !whole.is_const() && sizes[0].symbol != whole.symbol)
    return unsupported(cat("unfold: ", sizes[0], " windows of dim ", dim, " of ", x,
                           ": nothing says that they lie within it at every extent"));
  if (x.rank() == kMaxRank) return unsupported("unfold: the result would have more than 8 dims");
  const int64_t n = x[static_cast<int>(dim)].bound();
  const int64_t last = saturating_add(saturating_mul(stride, sizes[0].bound() - 1),
                                      saturating_mul(dilation, kernel - 1));
  // For one window the stride says nothing, but strides are products with it; so do dilations.
  const int64_t most = std::max<int64_t>(n, 1);
  if (stride > most || dilation > most || kernel > most)
    return invalid_argument(cat("unfold: kernel ", kernel, ", stride ", stride, ", dilation ",
                                dilation, " of dim ", dim, " of ", x));
  if (sizes[0].bound() > 0 && last >= n)
    return invalid_argument(cat("unfold: the last window ends at ", last, " of dim ", dim, " of ",
                                x, ": take fewer or pad it"));
  MapMaker m(1);
  auto plain = [&](std::string name, Dim size) {
    const uint8_t f = m.factor(std::move(name), size);
    return m.result(0, size, f), f;
  };
  for (int d = 0; d < x.rank(); ++d) {
    if (d != dim) {
      m.operand(0, plain(cat("d", d), x[d]));
      continue;
    }
    const uint8_t o = plain("o", sizes[0]), k = plain("k", kernel);
    m.operand(0, {0, {{o, stride}, {k, dilation}}, true});
  }
  return std::move(m).done();
}

struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const auto dim = static_cast<size_t>(a.attrs().i("dim"));
    const int64_t stride = a.attrs().i("stride"), dilation = a.attrs().i("dilation");
    for_each_index(shape_of(a.out[0]), [&](const Index& i) {
      Index from{};
      for (size_t d = 0; d < static_cast<size_t>(a.in[0].rank); ++d)
        from[d] = d < dim ? i[d] : d == dim ? stride * i[d] + dilation * i[d + 1] : i[d + 1];
      a.store_at(0, a.load_at(0, from), i);
    });
  }
};

// The sum over k of what each window offset gives back: slices, spread out by the stride.
Grads vjp(Builder&, const VjpCall& c) {
  const auto dim = static_cast<int>(c.attrs().i("dim"));
  const int64_t stride = c.attrs().i("stride"), dilation = c.attrs().i("dilation");
  const bool any = c.grad[0].dim(dim).bound() > 0;
  Var sum;
  for (int64_t k = 0; k < c.attrs().i("kernel"); ++k) {
    const Var part = squeeze(slice(c.grad[0], dim + 1, k, 1), dim + 1);
    const Var back =
        pad_to(part, dim, any ? dilation * k : 0, c.in[0].dim(dim), any ? stride - 1 : 0, 0.0);
    sum = sum.valid() ? sum + back : back;
  }
  return {sum};
}

Attrs localize(const OpCall& c, const DimMap& m, int factor, int64_t lo, int64_t hi) {
  Attrs a = *c.attrs;
  const std::string& name = m.factors[static_cast<size_t>(factor)].name;
  if (name == "o") a.set("size", std::vector<Dim>{hi - lo});
  if (name == "k") a.set("kernel", hi - lo);
  // For one window, or one element, the distance says nothing, and x may be as short.
  if (name == "o" && hi - lo <= 1) a.set("stride", int64_t{1});
  if (name == "k" && hi - lo <= 1) a.set("dilation", int64_t{1});
  return a;
}
}  // namespace

Var unfold(Var x, int dim, Dim size, int64_t kernel, int64_t stride, int64_t dilation, Loc loc) {
  if (dim < 0) dim += x.rank();
  if (size.bound() <= 1) stride = 1;  // says nothing of one window
  if (kernel == 1) dilation = 1;
  return x.builder().emit(unfold_op,
                          {{"dim", int64_t{dim}},
                           {"size", std::vector<Dim>{size}},
                           {"kernel", kernel},
                           {"stride", stride},
                           {"dilation", dilation}},
                          {x}, loc);
}

constinit const OpDef unfold_op = view_op({
    .name = "unfold",
    .formula = "y[.., o, k, ..] = x[.., stride o + dilation k, ..]",
    .dims_fn = dims,
    .attrs = {{"dim", AttrKind::kInt, true, "which dim"},
              {"size", AttrKind::kDims, true, "how many windows"},
              {"kernel", AttrKind::kInt, true, "elements of a window"},
              {"stride", AttrKind::kInt, true, "between windows"},
              {"dilation", AttrKind::kInt, true, "between a window's elements"}},
    .vjp = vjp,
    .reference = reference_with_ints<Ref>,
    .samples =
        [] {
          const SampleInput x = {{DType::kF32, {2, 9, 3}}};
          auto by = [](int64_t size, int64_t kernel, int64_t stride, int64_t dilation) {
            return Attrs{{"dim", int64_t{1}},
                         {"size", std::vector<Dim>{size}},
                         {"kernel", kernel},
                         {"stride", stride},
                         {"dilation", dilation}};
          };
          return std::vector<Sample>{{"overlapping", {x}, by(7, 3, 1, 1)},
                                     {"strided and dilated", {x}, by(3, 3, 2, 2)},
                                     {"apart", {x}, by(3, 2, 4, 1), "the last window ends at 9"},
                                     {"gaps", {x}, by(2, 2, 5, 1)},
                                     {"past all sizes",
                                      {x},
                                      by(1, 2, 1, int64_t{1} << 62),
                                      "dilation 4611686018427387904"},
                                     {"no kernel", {x}, by(2, 0, 5, 1), "kernel 0"}};
        },
    .localize = localize,
});

}  // namespace tegula
