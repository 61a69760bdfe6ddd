// Products of operands summed over loops: dot in einsum notation, convolution.
#include "tegula/base/dot_dims.h"
#include "tegula/passes/superopt/kinds.h"

namespace tegula::superopt {

// dims "b m k, b k n -> b m n", as the op dot has it.
Result<Form> dot_form(const KindCall& c) {
  TEGULA_TRY(expect_operands("dot", c, 2));
  const auto dims = c.attrs.words.find("dims");
  const std::string_view text =
      dims == c.attrs.words.end() ? std::string_view("m k, k n -> m n") : dims->second;
  const DotDims names = TEGULA_TRY(DotDims::parse(text));
  std::map<std::string, std::pair<Poly, Poly>, std::less<>> factor;  // its index and its size
  const DimNames* const sides[2] = {&names.a, &names.b};
  Form::Piece piece;
  Form form;
  for (int d = 0; d < names.out.size(); ++d)
    factor[std::string(names.out[d])] = {out_index(static_cast<size_t>(d)), Poly(-1)};
  for (int k = 0; k < 2; ++k) {
    const Extents& shape = c.shape(static_cast<size_t>(k));
    if (sides[k]->size() != static_cast<int>(shape.size()))
      return invalid_argument(cat("dot: operand ", k, " has rank ", shape.size(),
                                  ", its dims are \"", sides[k]->text(), "\""));
    Form::Read read{k, {}};
    for (int d = 0; d < sides[k]->size(); ++d) {
      const std::string name((*sides[k])[d]);
      const Poly& size = shape[static_cast<size_t>(d)];
      const auto [at, is_new] = factor.try_emplace(name, Poly(), Poly(-1));
      if (is_new) {
        const Symbol loop = loop_index(piece.loops.size());
        piece.loops.push_back({loop, size});
        at->second.first = loop;
      }
      if (at->second.second == Poly(-1)) at->second.second = size;
      if (at->second.second != size)
        return invalid_argument(
            cat("dot: ", name, " is ", at->second.second.text(), " and ", size.text()));
      read.index.push_back(at->second.first);
    }
    piece.reads.push_back(std::move(read));
  }
  for (int d = 0; d < names.out.size(); ++d) {
    const Poly& size = factor[std::string(names.out[d])].second;
    if (size == Poly(-1))
      return invalid_argument(cat("dot: ", names.out[d], " stands in the result alone"));
    form.shape.push_back(size);
  }
  form.pieces.push_back(std::move(piece));
  return form;
}

constexpr int64_t kMostGroups = 16;  // which are a piece each

// y[n, co, o] = Σ x[n, ci, stride·o + dilation·k − lo] w[co, ci, k]: x [n, ci, spatial…] and
// w [co, ci, spatial…]. With g groups, of which y's channels fill one after another, x has g·ci
// channels, and a group's are read from its own: a piece for each, or, of a number that is not
// known, a loop over them, which guards hold at the group of co. Lists stride, dilation,
// input_dilation (elements of x lie that far apart), lo and hi by spatial dim, 1 and 0 where
// absent; with a stride other than 1, `out` gives the extents.
Result<Form> conv_form(const KindCall& c) {
  TEGULA_TRY(expect_operands("conv", c, 2));
  const Extents &x = c.shape(0), &w = c.shape(1);
  const Poly groups = c.attrs.poly("groups", 1);
  if (x.size() < 3 || x.size() != w.size() || x[1] != groups * w[1])
    return invalid_argument(
        "conv: x is [n, groups*ci, spatial…], w [co, ci, spatial…] of the same rank");
  const auto width = divided(w[0], groups);  // of a group, in y
  if (!width || groups.terms()[0].second < 1)
    return invalid_argument(cat("conv: ", groups.text(), " groups of ", w[0].text()));
  Form form{{x[0], w[0]}, {}, "", true};
  Form::Piece piece;
  auto loop = [&](const Poly& size) {
    piece.loops.push_back({loop_index(piece.loops.size()), size});
    return Poly(piece.loops.back().symbol);
  };
  const Poly channel = loop(w[1]);
  Form::Read read_x{0, {out_index(0), channel}}, read_w{1, {out_index(1), channel}};
  for (size_t d = 2; d < x.size(); ++d) {
    auto attr = [&](std::string_view name, int64_t otherwise) {
      const std::vector<Poly> all = c.attrs.list(name);
      return d - 2 < all.size() ? all[d - 2] : Poly(otherwise);
    };
    const Poly stride = attr("stride", 1), dilation = attr("dilation", 1), lo = attr("lo", 0),
               apart = attr("input_dilation", 1);
    const Poly most = (x[d] - 1) * apart + lo + attr("hi", 0) - dilation * (w[d] - 1);
    if (stride != Poly(1) && c.attrs.list("out").size() + 2 != x.size())
      return invalid_argument("conv: with a stride, say the result's extents: out=[…]");
    form.shape.push_back(stride == Poly(1) ? most + 1 : attr("out", 1));
    const Poly k = loop(w[d]);
    Poly at = stride * Poly(out_index(d)) + dilation * k - lo;
    if (apart != Poly(1)) {
      const Poly t = loop(x[d]);
      piece.guards.push_back({at - apart * t, true});
      at = t;
    }
    read_x.index.push_back(at);
    read_w.index.push_back(k);
  }
  piece.reads = {read_x, read_w};
  const bool is_known = groups.is_const() && groups.constant() <= kMostGroups;
  const int64_t n = is_known ? groups.constant() : 1;
  for (int64_t g = 0; g < n; ++g) {
    form.pieces.push_back(piece);
    if (groups == Poly(1)) continue;
    Form::Piece& own = form.pieces.back();
    const Poly group = is_known ? Poly(g) : loop(groups);
    if (!is_known) own.loops = piece.loops;
    own.reads[0].index[1] = group * w[1] + channel;
    own.guards.push_back({Poly(out_index(1)) - group * *width});
    own.guards.push_back({group * *width + *width - 1 - Poly(out_index(1))});
  }
  return form;
}

}  // namespace tegula::superopt
