#include "tegula/ops/common/convolution.h"

namespace tegula {

Shape ConvShapes::of(ConvRole role) const {
  Shape s = role == 'x'   ? Shape{n, groups * c}
            : role == 'w' ? Shape{groups * d, c}
                          : Shape{n, groups * d};
  for (size_t i = 0; i < windows.size(); ++i)
    s.push_back(role == 'x' ? size[i] : role == 'w' ? Dim(windows[i].kernel) : out[i]);
  return s;
}

std::vector<int64_t> ConvShapes::summed() const {
  std::vector<int64_t> all = {open == 'y' ? c : open == 'x' ? d : n.bound()};
  for (size_t i = 0; i < windows.size(); ++i)
    all.push_back(open == 'w' ? out[i].bound() : windows[i].kernel);
  return all;
}

ConvTerm ConvShapes::term(const Index& at, const Index& in) const {
  const int64_t group = open == 'x' ? at[1] / c : (open == 'y' ? at[1] : at[0]) / d;
  const int64_t batch = open == 'w' ? in[0] : at[0];
  const int64_t in_channel = open == 'x' ? at[1] % c : open == 'w' ? at[1] : in[0];
  const int64_t out_channel = group * d + (open == 'x' ? in[0] : at[open == 'y' ? 1 : 0] % d);
  ConvTerm t;
  t.x = {batch, group * c + in_channel};
  t.w = {out_channel, in_channel};
  t.y = {batch, out_channel};
  for (size_t i = 0; i < windows.size(); ++i) {
    const Window& v = windows[i];
    int64_t &x = t.x[i + 2], &k = t.w[i + 2], &o = t.y[i + 2];
    if (open == 'x') {
      // In the order of the decomposition, whose kernel is reversed.
      x = at[i + 2], k = v.kernel - 1 - in[i + 1];
      const int64_t from = x + v.lo - v.dilation * k;
      o = from / v.stride;
      t.is_inside &= from >= 0 && from % v.stride == 0 && o < out[i].bound();
    } else {
      k = open == 'w' ? at[i + 2] : in[i + 1], o = open == 'w' ? in[i + 1] : at[i + 2];
      x = v.at(o, k);
      t.is_inside &= x >= 0 && x < size[i].bound();
    }
  }
  return t;
}

Result<ConvShapes> conv_shapes(const OpCall& call, ConvRole open) {
  const std::string_view op = call.op->name;
  const Shape *x = nullptr, *w = nullptr, *y = nullptr;
  for (size_t k = 0; k < 2; ++k) {
    const ConvRole role = conv_operands(open)[k];
    const Shape& s = call.shape(k);
    (role == 'x' ? x : role == 'w' ? w : y) = &s;
    if (s.rank() < 3 || s.rank() > 5 || s.rank() != call.shape(0).rank())
      return invalid_argument(cat(op, ": operands ", call.in[0], " and ", call.in[1],
                                  " must both have 3, 4 or 5 dims"));
  }
  const int rank = call.shape(0).rank() - 2;
  std::vector<int64_t> kernel;
  if (w) {
    for (int i = 0; i < rank; ++i) kernel.push_back((*w)[i + 2].bound());
  } else {
    kernel = call.attrs->ints("kernel");
  }
  ConvShapes s;
  s.open = open;
  s.windows = TEGULA_TRY(windows_of(call, kernel));
  s.groups = call.attrs->i("groups");
  if (s.rank() != rank || s.groups < 1 ||
      (!x && static_cast<int>(call.attrs->dims("size").size()) != rank))
    return invalid_argument(cat(op, ": kernel ", kernel, ", groups ", s.groups, " and size for ",
                                rank, " spatial dims"));
  auto per_group = [&](const Shape& shape, int dim) -> Result<int64_t> {
    const Dim n = shape[dim];
    if (!n.is_const() || n.bound() % s.groups != 0)
      return invalid_argument(
          cat(op, ": ", s.groups, " groups do not divide ", n, " channels of ", shape));
    return n.bound() / s.groups;
  };
  s.c = w ? (*w)[1].bound() : TEGULA_TRY(per_group(*x, 1));
  s.d = TEGULA_TRY(w ? per_group(*w, 0) : per_group(*y, 1));
  s.n = (x ? *x : *y)[0];
  for (int i = 0; i < rank; ++i) {
    const auto k = static_cast<size_t>(i);
    s.size.push_back(x ? (*x)[i + 2] : call.attrs->dims("size")[k]);
    s.out.push_back(TEGULA_TRY(s.windows[k].count(op, s.size.back())));
  }
  for (size_t k = 0; k < 2; ++k) {
    const ConvRole role = conv_operands(open)[k];
    if (!(call.shape(k) == s.of(role)))
      return invalid_argument(cat(op, ": ", role, " is ", call.shape(k), ", must be ", s.of(role)));
  }
  return s;
}

Result<DimMap> conv_dims(const OpCall& call, ConvRole open) {
  const ConvShapes s = TEGULA_TRY(conv_shapes(call, open));
  const bool to_x = open == 'x';
  DimMap m;
  auto factor = [&](std::string name, Dim size, bool whole = false) {
    const auto f = static_cast<uint8_t>(m.add_factor(std::move(name), size));
    m.factors.back().whole = whole;
    return DimTerm{f, 1};
  };
  const DimTerm n = factor("n", s.n), g = factor("g", s.groups), c = factor("c", s.c),
                d = factor("d", s.d);
  auto grouped = [&](DimTerm minor, int64_t size) {
    if (s.groups == 1) return DimExpr{0, {minor}};
    return DimExpr{0, {{g.factor, size}, minor}};
  };
  std::vector<DimExpr> x = {{0, {n}}, grouped(c, s.c)}, w = {grouped(d, s.d), {0, {c}}},
                       y = {{0, {n}}, grouped(d, s.d)};
  for (size_t i = 0; i < s.windows.size(); ++i) {
    const Window& v = s.windows[i];
    const DimTerm o = factor(cat("o", i), s.out[i], to_x), k = factor(cat("k", i), v.kernel, to_x);
    w.push_back({0, {k}});
    y.push_back({0, {o}});
    // A gradient to x is gathered at every place of x from windows all over it.
    x.push_back(to_x ? DimExpr{0, {factor(cat("i", i), s.size[i], true)}}
                     : DimExpr{-v.lo, {{o.factor, v.stride}, {k.factor, v.dilation}}, true});
  }
  auto of = [&](ConvRole role) { return role == 'x' ? x : role == 'w' ? w : y; };
  m.operands = {of(conv_operands(open)[0]), of(conv_operands(open)[1])};
  m.results = {of(open)}, m.result_shapes = {s.of(open)};
  m.finish();
  return m;
}

Attrs conv_localize(const OpCall& call, const DimMap& m, int factor, int64_t lo, int64_t hi) {
  Attrs a = *call.attrs;
  const Factor& f = m.factors[static_cast<size_t>(factor)];
  if (f.name == "g") a.set("groups", hi - lo);
  const char kind = f.name[0];
  if (f.name.size() != 2 || (kind != 'o' && kind != 'k')) return a;
  const auto i = static_cast<size_t>(f.name[1] - '0');
  auto set = [&](std::string_view name, int64_t value) {
    auto values = a.ints(name);
    values[i] = value;
    a.set(name, values);
  };
  // A part's halo holds the padding.
  set("lo", 0), set("hi", 0);
  if (kind == 'k' && a.has("kernel")) set("kernel", hi - lo);
  return a;
}

int64_t conv_flops(const OpCall& c, ConvRole open) {
  const auto s = conv_shapes(c, open);
  if (!s.ok()) return 0;
  Count flops = Count(2) * c.out[0].shape.numel();
  for (int64_t extent : s->summed()) flops = flops * extent;
  return flops.n;
}

Bytes conv_bytes(const OpCall& c, ConvRole open) {
  const auto s = conv_shapes(c, open);
  int64_t read = size_bytes(c.in[0].dtype) * c.shape(0)[0].bound() * c.shape(0)[1].bound();
  for (size_t i = 0; s.ok() && i < s->windows.size(); ++i) {
    const int64_t size = s->size[i].bound(), out = s->out[i].bound();
    read *= open == 'x' ? s->windows[i].touching(size, out) : s->windows[i].touched(size, out);
  }
  return {read + c.in[1].bytes(), c.out[0].bytes()};
}

namespace {
// The attributes of a sibling whose result has this role and, from dim 2 on, this shape.
Attrs attrs_of(const Attrs& from, ConvRole result, const Shape& shape) {
  Attrs a = from;
  a.erase("size"), a.erase("kernel");
  if (result == 'x') a.set("size", std::vector<Dim>(shape.begin() + 2, shape.end()));
  if (result != 'w') return a;
  std::vector<int64_t> kernel;
  for (int i = 2; i < shape.rank(); ++i) kernel.push_back(shape[i].bound());
  a.set("kernel", std::move(kernel));
  return a;
}

int channel_dim(ConvRole role) { return role == 'w' ? 0 : 1; }

// The op of one group after another, where splitting the group dim would take a ninth dim.
Var by_group(Builder& b, const OpCall& c, std::span<const Var> in, const ConvShapes& s) {
  Attrs one = *c.attrs;
  one.set("groups", int64_t{1});
  std::vector<Var> parts;
  for (int64_t g = 0; g < s.groups; ++g) {
    std::vector<Var> of_group;
    for (size_t k = 0; k < 2; ++k) {
      const ConvRole role = conv_operands(s.open)[k];
      const int64_t channels = role == 'x' ? s.c : s.d;
      of_group.push_back(slice(in[k], channel_dim(role), g * channels, channels));
    }
    parts.push_back(b.emit_n(*c.op, one, of_group)[0]);
  }
  return concat(parts, channel_dim(s.open));
}

// y spread out by the strides and padded, and the kernel reversed: then x is a convolution of them,
// with windows of stride 1. The zeros between y's elements are multiplied too, and counted.
struct Spread {
  Var y, w;
  std::vector<Window> windows;
};
Result<Spread> spread(const ConvShapes& s, Var y, Var w) {
  Spread out;
  for (int i = 0; i < s.rank(); ++i) {
    const Window& v = s.windows[static_cast<size_t>(i)];
    const Dim size = s.size[static_cast<size_t>(i)], n_out = s.out[static_cast<size_t>(i)];
    w = slice(w, i + 2, v.kernel - 1, v.kernel, -1);
    // Spread out, y has stride (out - 1) + 1 elements; size + reach are wanted. A symbolic size and
    // out differ by a constant, as stride is 1 then.
    const int64_t before = v.reach() - v.lo;
    const int64_t after = size.bound() + v.reach() - before - (v.stride * (n_out.bound() - 1) + 1);
    y = pad(y, i + 2, std::max<int64_t>(before, 0), std::max<int64_t>(after, 0), v.stride - 1, 0.0);
    if (before < 0 || after < 0)
      y = slice(y, i + 2, std::max<int64_t>(-before, 0), TEGULA_TRY(add(size, v.reach())));
    out.windows.push_back({1, 0, 0, v.dilation, v.kernel});
  }
  out.y = unfold_windows(y, out.windows, s.size), out.w = w;
  return out;
}

// The dims of a tensor as dot names them, with the group apart: "n g c o0 k0 o1 k1".
std::string names_of(ConvRole role, const ConvShapes& s) {
  const std::string_view groups = s.groups > 1 ? "g " : "";
  std::string out = role == 'x'   ? cat("n ", groups, "c")
                    : role == 'w' ? cat(groups, "d c")
                                  : cat("n ", groups, "d");
  // The unfolded tensor: x over windows, or, where x is open, y over x.
  const std::string_view per_dim = role == 'w'     ? "k"
                                   : s.open != 'x' ? (role == 'x' ? "ok" : "o")
                                                   : (role == 'y' ? "ik" : "i");
  for (int i = 0; i < s.rank(); ++i)
    for (char c : per_dim) out += cat(" ", c, i);
  return out;
}

// [.., groups·c, ..] <-> [.., groups, c, ..].
Var split_groups(Var x, int dim, int64_t groups) {
  if (groups == 1) return x;
  Shape s = x.shape();
  s[dim] = s[dim].bound() / groups;
  s.insert(dim, groups);
  return reshape(x, s);
}
Var join_groups(Var x, int dim, int64_t groups) {
  if (groups == 1) return x;
  Shape s = x.shape();
  s[dim + 1] = s[dim + 1].bound() * s[dim].bound();
  s.erase(dim);
  return reshape(x, s);
}
}  // namespace

Grads conv_vjp(Builder& b, const VjpCall& c, ConvRole open) {
  const std::string_view operands = conv_operands(open);
  auto value = [&](ConvRole role) {
    return role == open ? c.grad[0] : c.in[role == operands[0] ? 0 : 1];
  };
  Grads grads;
  for (size_t k = 0; k < 2; ++k) {
    const ConvRole to = operands[k];
    const OpDef& op = to == 'x' ? conv_bwd_data_op : to == 'w' ? conv_bwd_filter_op : conv_op;
    grads.push_back(b.emit(op, attrs_of(c.attrs(), to, c.in[k].shape()),
                           {value(conv_operands(to)[0]), value(conv_operands(to)[1])}));
  }
  return grads;
}

std::vector<Var> conv_decompose(Builder& b, const OpCall& c, std::span<const Var> in,
                                ConvRole open) {
  auto shapes = conv_shapes(c, open);
  if (!shapes.ok()) return {b.fail(std::move(shapes).error())};
  const ConvShapes& s = *shapes;
  if (s.groups > 1 && s.rank() == 3) return {by_group(b, c, in, s)};
  Var first = in[0], second = in[1];
  if (open == 'x') {
    auto apart = spread(s, first, second);
    if (!apart.ok()) return {b.fail(std::move(apart).error())};
    first = apart->y, second = apart->w;
  } else {
    first = unfold_windows(first, s.windows, s.out);
  }
  const ConvRole a = conv_operands(open)[0], w = conv_operands(open)[1];
  const std::string spec = cat(names_of(a, s), ", ", names_of(w, s), " -> ", names_of(open, s));
  const Var y = dot(spec, split_groups(first, channel_dim(a), s.groups),
                    split_groups(second, channel_dim(w), s.groups));
  return {join_groups(y, channel_dim(open), s.groups)};
}

}  // namespace tegula
