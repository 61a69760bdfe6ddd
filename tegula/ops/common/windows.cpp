#include "tegula/ops/common/windows.h"

#include <algorithm>

namespace tegula {

Result<Dim> Window::count(std::string_view op, Dim size) const {
  const int64_t padded = saturating_add(size.bound(), saturating_add(lo, hi));
  if (padded <= reach())
    return invalid_argument(cat(op, ": a kernel that spans ", reach() + 1, " does not fit ", size,
                                " padded by ", lo, " and ", hi));
  if (stride == 1) return add(size, saturating_add(lo, hi) - reach());
  if (!size.is_const())
    return unsupported(cat(op, ": stride ", stride, " on a dim whose extent is symbolic"));
  return Dim((padded - reach() - 1) / stride + 1);
}

int64_t Window::touched(int64_t size, int64_t n) const {
  std::vector<bool> hit(static_cast<size_t>(size), false);
  for (int64_t o = 0; o < n; ++o)
    for (int64_t k = 0; k < kernel; ++k)
      if (const int64_t i = at(o, k); i >= 0 && i < size) hit[static_cast<size_t>(i)] = true;
  return std::count(hit.begin(), hit.end(), true);
}

int64_t Window::touching(int64_t size, int64_t n) const {
  int64_t total = 0;
  for (int64_t o = 0; o < n; ++o) {
    bool any = false;
    for (int64_t k = 0; k < kernel; ++k) any |= at(o, k) >= 0 && at(o, k) < size;
    total += any;
  }
  return total;
}

Result<std::vector<Window>> windows_of(const OpCall& c, std::span<const int64_t> kernel) {
  if (kernel.empty() || kernel.size() > 3)
    return invalid_argument(cat(c.op->name, ": 1 to 3 spatial dims, got ", kernel.size()));
  std::vector<Window> out(kernel.size());
  auto read = [&](std::string_view name, int64_t Window::*field, int64_t least) -> Status {
    if (!c.attrs->has(name)) return {};
    const auto& values = c.attrs->ints(name);
    if (values.size() != kernel.size())
      return invalid_argument(
          cat(c.op->name, ": ", name, " ", values, " for ", kernel.size(), " spatial dims"));
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] < least || values[i] > kMaxElements)
        return invalid_argument(cat(c.op->name, ": ", name, " is ", values[i],
                                    ", must be at least ", least, " and at most ", kMaxElements));
      out[i].*field = values[i];
    }
    return {};
  };
  TEGULA_TRY(read("stride", &Window::stride, 1));
  TEGULA_TRY(read("lo", &Window::lo, 0));
  TEGULA_TRY(read("hi", &Window::hi, 0));
  TEGULA_TRY(read("dilation", &Window::dilation, 1));
  for (size_t i = 0; i < kernel.size(); ++i) {
    if (kernel[i] < 1 || kernel[i] > kMaxElements)
      return invalid_argument(cat(c.op->name, ": kernel is ", kernel[i],
                                  ", must be at least 1 and at most ", kMaxElements));
    out[i].kernel = kernel[i];
  }
  return out;
}

Attrs window_attrs(const WindowOptions& options, int rank) {
  auto filled = [&](const std::vector<int64_t>& v, int64_t fallback) {
    return v.empty() ? std::vector<int64_t>(static_cast<size_t>(rank), fallback) : v;
  };
  return {{"stride", filled(options.stride, 1)},
          {"lo", filled(options.lo, 0)},
          {"hi", filled(options.hi, 0)},
          {"dilation", filled(options.dilation, 1)}};
}

int64_t ConvShapes::kernel_numel() const {
  int64_t n = 1;
  for (const Window& w : windows) n *= w.kernel;
  return n;
}
Shape ConvShapes::x() const {
  Shape s = {n, groups * c};
  for (const Dim& i : size) s.push_back(i);
  return s;
}
Shape ConvShapes::w() const {
  Shape s = {groups * d, c};
  for (const Window& i : windows) s.push_back(i.kernel);
  return s;
}
Shape ConvShapes::y() const {
  Shape s = {n, groups * d};
  for (const Dim& o : out) s.push_back(o);
  return s;
}

Result<ConvShapes> conv_shapes(const OpCall& call, std::string_view roles) {
  const std::string_view op = call.op->name;
  const Shape* shapes[3] = {};  // x, w, y
  for (size_t k = 0; k < 2; ++k) {
    const Shape& s = call.shape(k);
    shapes[roles[k] - 'w' == 1 ? 0 : roles[k] == 'w' ? 1 : 2] = &s;
    if (s.rank() < 3 || s.rank() > 5 || s.rank() != call.shape(0).rank())
      return invalid_argument(cat(op, ": operands ", call.in[0], " and ", call.in[1],
                                  " must both have 3, 4 or 5 dims"));
  }
  const auto [x, w, y] = shapes;
  const int rank = call.shape(0).rank() - 2;
  std::vector<int64_t> kernel;
  if (w) {
    for (int i = 0; i < rank; ++i) kernel.push_back((*w)[i + 2].bound());
  } else {
    kernel = call.attrs->ints("kernel");
  }
  ConvShapes s;
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
  for (const auto& [have, want, name] :
       {std::tuple{x, s.x(), "x"}, std::tuple{w, s.w(), "w"}, std::tuple{y, s.y(), "y"}})
    if (have && !(*have == want))
      return invalid_argument(cat(op, ": ", name, " is ", *have, ", must be ", want));
  return s;
}

Result<DimMap> conv_dims(const OpCall& call, std::string_view roles) {
  const ConvShapes s = TEGULA_TRY(conv_shapes(call, roles));
  const bool to_x = roles == "yw", to_w = roles == "xy";
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
  if (to_x) {
    m.operands = {y, w}, m.results = {x}, m.result_shapes = {s.x()};
  } else if (to_w) {
    m.operands = {x, y}, m.results = {w}, m.result_shapes = {s.w()};
  } else {
    m.operands = {x, w}, m.results = {y}, m.result_shapes = {s.y()};
  }
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

int64_t conv_flops(const OpCall& c, std::string_view roles) {
  const auto s = conv_shapes(c, roles);
  if (!s.ok()) return 0;
  const int64_t outs = c.out[0].shape.numel();
  if (roles == "xw") return (Count(2) * outs * s->c * s->kernel_numel()).n;
  if (roles == "yw") return (Count(2) * outs * s->d * s->kernel_numel()).n;
  Count windows = s->n.bound();
  for (const Dim& o : s->out) windows = windows * o.bound();
  return (Count(2) * outs * windows).n;
}

Bytes conv_bytes(const OpCall& c, std::string_view roles) {
  const auto s = conv_shapes(c, roles);
  int64_t read = size_bytes(c.in[0].dtype) * c.shape(0)[0].bound() * c.shape(0)[1].bound();
  for (size_t i = 0; s.ok() && i < s->windows.size(); ++i) {
    const int64_t size = s->size[i].bound(), out = s->out[i].bound();
    read *= roles[0] == 'x' ? s->windows[i].touched(size, out) : s->windows[i].touching(size, out);
  }
  return {read + c.in[1].bytes(), c.out[0].bytes()};
}

Attrs conv_attrs(const Attrs& from, char result, const Shape& shape) {
  Attrs a = from;
  a.erase("size"), a.erase("kernel");
  if (result == 'x') a.set("size", std::vector<Dim>(shape.begin() + 2, shape.end()));
  if (result != 'w') return a;
  std::vector<int64_t> kernel;
  for (int i = 2; i < shape.rank(); ++i) kernel.push_back(shape[i].bound());
  a.set("kernel", std::move(kernel));
  return a;
}

std::vector<Var> conv_by_group(Builder& b, const OpCall& c, std::span<const Var> in, GroupCut first,
                               GroupCut second, int result_dim) {
  Attrs one = *c.attrs;
  one.set("groups", int64_t{1});
  std::vector<Var> parts;
  for (int64_t g = 0; g < c.attrs->i("groups"); ++g) {
    const Var x = slice(in[0], first.dim, g * first.size, first.size);
    parts.push_back(
        b.emit(*c.op, one, {x, slice(in[1], second.dim, g * second.size, second.size)}));
  }
  return {concat(parts, result_dim)};
}

Var unfold_windows(Var x, std::span<const Window> windows, std::span<const Dim> out) {
  for (size_t i = 0; i < windows.size(); ++i)
    x = pad(x, static_cast<int>(i) + 2, windows[i].lo, windows[i].hi, 0, 0.0);
  for (size_t i = 0; i < windows.size(); ++i)
    x = unfold(x, static_cast<int>(2 * i) + 2, out[i], windows[i].kernel, windows[i].stride,
               windows[i].dilation);
  return x;
}

Var conv_dot(Var a, ConvTerm a_dims, Var b, ConvTerm b_dims, ConvTerm result, int rank) {
  std::string spec;
  auto side = [&](const ConvTerm& t, std::string_view end) {
    std::string words;
    for (char c : t.lead) words += cat(c, ' ');
    for (int i = 0; i < rank; ++i)
      for (char c : t.per_dim) words += cat(c, i, ' ');
    words.pop_back();
    spec += cat(words, end);
  };
  side(a_dims, ", "), side(b_dims, " -> "), side(result, "");
  return dot(spec, a, b);
}

Var split_groups(Var x, int dim, int64_t groups) {
  Shape s = x.shape();
  s[dim] = s[dim].bound() / groups;
  s.insert(dim, groups);
  return reshape(x, s);
}

Var join_groups(Var x, int dim) {
  Shape s = x.shape();
  s[dim + 1] = s[dim + 1].bound() * s[dim].bound();
  s.erase(dim);
  return reshape(x, s);
}

}  // namespace tegula
