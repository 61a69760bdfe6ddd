// Sums and maxima over dims and windows.
#include "tegula/base/algorithm.h"
#include "tegula/passes/superopt/kinds.h"

namespace tegula::superopt {

namespace {
// Loops over the dims; "keep" (a constant 1) leaves them with extent 1. A maximum needs its loops
// bounded, since what lies outside would count as 0.
Result<Form> reduce(std::string_view kind, const KindCall& c, bool is_max) {
  TEGULA_TRY(expect_operands(kind, c, 1));
  const Extents& x = c.shape(0);
  const std::vector<int64_t> dims = c.attrs.integers("dims");
  const bool keeps = c.attrs.poly("keep", 0) == Poly(1);
  for (const int64_t d : dims)
    if (d < 0 || d >= static_cast<int64_t>(x.size()))
      return invalid_argument(cat(kind, ": dim ", d, " of rank ", x.size()));
  Form form{{}, {}, is_max ? "max" : "", is_max || keeps};
  Form::Piece piece;
  Form::Read read{0, {}};
  for (size_t d = 0; d < x.size(); ++d) {
    if (std::find(dims.begin(), dims.end(), static_cast<int64_t>(d)) == dims.end()) {
      read.index.emplace_back(out_index(form.shape.size()));
      form.shape.push_back(x[d]);
      continue;
    }
    if (keeps) form.shape.emplace_back(1);
    const Symbol loop = loop_index(piece.loops.size());
    piece.loops.push_back({loop, x[d]});
    if (is_max) {
      piece.guards.push_back({Poly(loop)});
      piece.guards.push_back({x[d] - 1 - Poly(loop)});
    }
    read.index.emplace_back(loop);
  }
  piece.reads.push_back(std::move(read));
  form.pieces.push_back(std::move(piece));
  return form;
}

// Windows over the spatial dims of [n, c, spatial…]: padding is 0 to a sum, and never the largest.
Result<Form> pool(std::string_view kind, const KindCall& c, bool is_max) {
  TEGULA_TRY(expect_operands(kind, c, 1));
  const Extents& x = c.shape(0);
  const std::vector<Poly> kernel = c.attrs.list("kernel");
  if (x.size() < 3 || kernel.size() + 2 != x.size())
    return invalid_argument(cat(kind, ": kernel has one extent a spatial dim of [n, c, spatial…]"));
  Form form{{x[0], x[1]}, {}, is_max ? "max" : "", true};
  Form::Piece piece;
  Form::Read read{0, {out_index(0), out_index(1)}};
  for (size_t d = 2; d < x.size(); ++d) {
    auto attr = [&](std::string_view name, int64_t otherwise) {
      const std::vector<Poly> all = c.attrs.list(name);
      return d - 2 < all.size() ? all[d - 2] : Poly(otherwise);
    };
    const Poly stride = attr("stride", 1), lo = attr("lo", 0);
    if (stride != Poly(1) && !c.attrs.has("out"))
      return invalid_argument(cat(kind, ": with a stride, say the result's extents: out=[…]"));
    form.shape.push_back(stride == Poly(1) ? x[d] + lo + attr("hi", 0) - kernel[d - 2] + 1
                                           : attr("out", 1));
    const Poly loop(loop_index(d - 2));
    const Poly at = stride * Poly(out_index(d)) + loop - lo;
    piece.loops.push_back({loop_index(d - 2), kernel[d - 2]});
    piece.guards.push_back({loop});
    piece.guards.push_back({kernel[d - 2] - 1 - loop});
    if (is_max) {
      piece.guards.push_back({at});
      piece.guards.push_back({x[d] - 1 - at});
    }
    read.index.push_back(at);
  }
  piece.reads.push_back(std::move(read));
  form.pieces.push_back(std::move(piece));
  return form;
}
}  // namespace

Result<Form> reduce_sum_form(const KindCall& c) { return reduce("reduce_sum", c, false); }
Result<Form> reduce_max_form(const KindCall& c) { return reduce("reduce_max", c, true); }
Result<Form> pool_sum_form(const KindCall& c) { return pool("pool_sum", c, false); }
Result<Form> pool_max_form(const KindCall& c) { return pool("pool_max", c, true); }

}  // namespace tegula::superopt
