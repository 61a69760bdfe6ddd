// Elements moved, none computed: concat, slice, pad, permute, reshape, broadcast.
#include "tegula/base/algorithm.h"
#include "tegula/passes/superopt/kinds.h"

namespace tegula::superopt {

// y[.., i, ..] = Σ_k x_k[.., i − offset_k, ..]: outside its own box a piece is 0.
Result<Form> concat_form(const KindCall& c) {
  if (c.in.empty()) return invalid_argument("concat: has no operand");
  const size_t rank = c.shape(0).size(), dim = TEGULA_TRY(dim_of("concat", c, rank));
  Form form;
  form.shape = c.shape(0);
  Poly offset = 0;
  for (size_t k = 0; k < c.in.size(); ++k) {
    const Extents& x = c.shape(k);
    for (size_t d = 0; d < rank; ++d)
      if (x.size() != rank || (d != dim && x[d] != form.shape[d]))
        return invalid_argument(cat("concat: operand ", k, " differs in more than dim ", dim));
    Form::Read read{static_cast<int>(k), own_indices(rank)};
    read.index[dim] = read.index[dim] - offset;
    form.pieces.push_back({1, {}, {}, {read}});
    offset += x[dim];
  }
  form.shape[dim] = offset;
  return form;
}

// y[.., i, ..] = x[.., start + step·i, ..] for 0 ≤ i < size. A slice past x reads 0: rules state
// where it lies within, and evaluation checks it.
Result<Form> slice_form(const KindCall& c) {
  TEGULA_TRY(expect_operands("slice", c, 1));
  const Extents& x = c.shape(0);
  const size_t dim = TEGULA_TRY(dim_of("slice", c, x.size()));
  if (!c.attrs.has("size")) return invalid_argument("slice: say its size");
  Form form{x, {}, "", true};
  form.shape[dim] = c.attrs.poly("size", 1);
  Form::Read read{0, own_indices(x.size())};
  read.index[dim] = c.attrs.poly("start", 0) + c.attrs.poly("step", 1) * read.index[dim];
  form.pieces.push_back({1, {}, {}, {read}});
  return form;
}

// y has lo elements before, hi behind and `interior` between any two of x; lo and hi may be
// negative, which cuts. Its value, a scalar or integer, stands in the added places.
Result<Form> pad_form(const KindCall& c) {
  TEGULA_TRY(expect_operands("pad", c, 1));
  const Extents& x = c.shape(0);
  const size_t dim = TEGULA_TRY(dim_of("pad", c, x.size()));
  const Poly lo = c.attrs.poly("lo", 0), hi = c.attrs.poly("hi", 0),
             apart = c.attrs.poly("interior", 0) + 1, value = c.attrs.poly("value", 0);
  Form form{x, {}, "", true};
  form.shape[dim] = (x[dim] - 1) * apart + 1 + lo + hi;
  Form::Piece piece;
  Form::Read read{0, own_indices(x.size())};
  const Poly at = read.index[dim] - lo;
  if (apart == Poly(1)) {
    read.index[dim] = at;
  } else {
    piece.loops.push_back({loop_index(0), x[dim]});
    piece.guards.push_back({at - apart * Poly(loop_index(0)), true});
    read.index[dim] = loop_index(0);
  }
  piece.reads.push_back(read);
  form.pieces.push_back(piece);
  if (value.is_zero()) return form;
  form.pieces.push_back({value, {}, {}, {}});  // everywhere, less where elements of x lie
  piece.reads.clear();
  piece.coefficient = -value;
  piece.guards.push_back({read.index[dim]});
  piece.guards.push_back({x[dim] - 1 - read.index[dim]});
  form.pieces.push_back(piece);
  return form;
}

// y = x, but for b's elements from `start` on along each of the dims, ascending; b lies within x.
Result<Form> update_form(const KindCall& c) {
  TEGULA_TRY(expect_operands("dynamic_update_slice", c, 2));
  const Extents &x = c.shape(0), &b = c.shape(1);
  const std::vector<int64_t> dims = c.attrs.integers("dim");
  const std::vector<Poly> start = c.attrs.list("start");
  Form form{x, {}, "", true};
  Form::Read read_x{0, own_indices(x.size())}, read_b = read_x;
  read_b.operand = 1;
  Form::Piece outside{1, {}, {}, {read_x}};
  size_t k = 0;
  for (size_t d = 0; d < x.size(); ++d) {
    const bool is_moved = k < dims.size() && dims[k] == static_cast<int64_t>(d);
    if (b.size() != x.size() || (!is_moved && x[d] != b[d]))
      return invalid_argument(cat("dynamic_update_slice: differs in dim ", d));
    if (!is_moved) continue;
    const Poly at = Poly(out_index(d)) - (k < start.size() ? start[k] : Poly(0));
    read_b.index[d] = at;
    for (const Poly& out : {-at - 1, at - b[d]}) {  // before and behind b, within it so far
      form.pieces.push_back(outside);
      form.pieces.back().guards.push_back({out});
    }
    outside.guards.push_back({at});
    outside.guards.push_back({b[d] - 1 - at});
    ++k;
  }
  if (dims.empty() || k < dims.size() || start.size() > k)
    return invalid_argument("dynamic_update_slice: dim must be one or several, ascending");
  form.pieces.insert(form.pieces.begin(), {1, {}, {}, {read_b}});
  return form;
}

Result<Form> permute_form(const KindCall& c) {
  TEGULA_TRY(expect_operands("permute", c, 1));
  const Extents& x = c.shape(0);
  const std::vector<int64_t> order = c.attrs.integers("order");
  std::vector<bool> seen(x.size());
  Form form;
  Form::Read read{0, std::vector<Poly>(x.size())};
  for (size_t d = 0; d < order.size(); ++d) {
    const auto from = static_cast<size_t>(order[d]);
    if (order.size() != x.size() || from >= x.size() || seen[from])
      return invalid_argument("permute: order must have each dim once");
    seen[from] = true;
    form.shape.push_back(x[from]);
    read.index[from] = out_index(d);
  }
  if (form.shape.size() != x.size()) return invalid_argument("permute: order has not all dims");
  form.pieces.push_back({1, {}, {}, {read}});
  return form;
}

namespace {
Poly product(std::span<const Poly> all) {
  Poly p = 1;
  for (const Poly& size : all) p = p * size;
  return p;
}
// The number of an element among the extents, major dim first.
Poly number(std::span<const Poly> index, std::span<const Poly> extents) {
  Poly n = 0;
  for (size_t d = 0; d < extents.size(); ++d) n = n * extents[d] + index[d];
  return n;
}
}  // namespace

// Rows merge and split where a run of x's dims and a run of y's have one product. Within a run of
// several of x's dims a loop stands for each, and an equality says that both sides' numbers agree.
Result<Form> reshape_form(const KindCall& c) {
  TEGULA_TRY(expect_operands("reshape", c, 1));
  const Extents &x = c.shape(0), y = c.attrs.list("shape");
  if (product(x) != product(y)) return invalid_argument("reshape: the numbers of elements differ");
  Form form{y, {}, "", true};
  Form::Piece piece;
  Form::Read read{0, {}};
  const std::vector<Poly> own = own_indices(y.size());
  const std::span<const Poly> xs(x), ys(y), is(own);
  for (size_t i = 0, j = 0; i < x.size() || j < y.size();) {
    size_t n = i < x.size() ? 1 : 0, m = j < y.size() ? 1 : 0;  // the shortest run of one product
    for (; product(xs.subspan(i, n)) != product(ys.subspan(j, m));) {
      size_t k = 1;
      bool found = false;
      for (k = 1; !found && k <= x.size() - i + y.size() - j; ++k)
        for (size_t a = 0; !found && a <= k; ++a)
          if (i + a <= x.size() && j + k - a <= y.size() &&
              product(xs.subspan(i, a)) == product(ys.subspan(j, k - a)))
            n = a, m = k - a, found = true;
      if (!found) return invalid_argument("reshape: no runs of dims agree");
    }
    const Poly at = number(is.subspan(j, m), ys.subspan(j, m));
    if (n == 1) {
      read.index.push_back(at);
    } else if (n > 1) {
      std::vector<Poly> loops;
      for (size_t d = i; d < i + n; ++d) {
        piece.loops.push_back({loop_index(piece.loops.size()), x[d]});
        loops.emplace_back(piece.loops.back().symbol);
        read.index.push_back(loops.back());
      }
      piece.guards.push_back({at - number(loops, xs.subspan(i, n)), true});
    }
    i += n, j += m;
  }
  piece.reads.push_back(std::move(read));
  form.pieces.push_back(std::move(piece));
  return form;
}

// NumPy's: aligned at the right, dims of extent 1 repeat.
Result<Form> broadcast_form(const KindCall& c) {
  TEGULA_TRY(expect_operands("broadcast", c, 1));
  const Extents &x = c.shape(0), y = c.attrs.list("shape");
  if (x.size() > y.size()) return invalid_argument("broadcast: to fewer dims");
  Form form{y, {}, "", true};
  Form::Read read{0, {}};
  for (size_t d = y.size() - x.size(); d < y.size(); ++d) {
    const Poly& size = x[d - (y.size() - x.size())];
    if (size != y[d] && size != Poly(1)) return invalid_argument("broadcast: extents do not fit");
    read.index.push_back(size == y[d] ? Poly(out_index(d)) : Poly(0));
  }
  form.pieces.push_back({1, {}, {}, {read}});
  return form;
}

}  // namespace tegula::superopt
