// The largest of every window, and where it lies: what the gradient needs instead of x. Padding
// takes no part; the first of equals wins, and NaN wins over all.
#include "tegula/ops/common/rules.h"
#include "tegula/ops/common/windows.h"
#include "tegula/ops/indexing.h"

namespace tegula {

namespace {
Result<std::vector<Window>> windows(const OpCall& c) {
  const auto& kernel = c.attrs->ints("kernel");
  if (c.shape(0).rank() != static_cast<int>(kernel.size()) + 2)
    return invalid_argument(
        cat("max_pool: x is ", c.in[0], ", must be [n, c, ", kernel.size(), " spatial dims]"));
  auto out = TEGULA_TRY(windows_of(c, kernel));
  for (size_t i = 0; i < out.size(); ++i) {
    const Window& w = out[i];
    const Dim size = c.shape(0)[static_cast<int>(i) + 2];
    const Dim n = TEGULA_TRY(w.count("max_pool", size));
    // The last window may be padding alone only where it begins past x.
    const bool is_past = w.stride * (n.bound() - 1) - w.lo >= size.bound();
    if (w.lo >= w.kernel || (w.hi >= w.kernel && is_past))
      return invalid_argument(cat("max_pool: padding ", w.lo, " and ", w.hi, " leaves windows of ",
                                  w.kernel, " empty"));
  }
  return out;
}

Result<DimMap> dims(const OpCall& c) {
  const auto w = TEGULA_TRY(windows(c));
  const Shape& x = c.shape(0);
  MapMaker m(1, 2);
  for (int d = 0; d < x.rank(); ++d) {
    const bool spatial = d >= 2;
    const Dim size = spatial ? TEGULA_TRY(w[d - 2].count("max_pool", x[d])) : x[d];
    // The places in the second result are those of a whole x.
    const uint8_t f = m.factor(cat("d", d), size, spatial);
    m.operand(0, spatial ? MapMaker::whole() : MapMaker::plain(f));
    m.result(0, size, f), m.result(1, size, f);
  }
  return std::move(m).done();
}

struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const auto w = *windows(a.call);
    std::vector<int64_t> kernel;
    for (const Window& v : w) kernel.push_back(v.kernel);
    for_each_index(shape_of(a.out[0]), [&](const Index& y) {
      S best = S(0.0);
      int64_t place = -1;
      for_each_index(kernel, [&](const Index& k) {
        Index x = {y[0], y[1]};
        int64_t at = 0;
        for (size_t i = 0; i < w.size(); ++i) {
          x[i + 2] = w[i].at(y[i + 2], k[i]);
          if (x[i + 2] < 0 || x[i + 2] >= a.dim(0, static_cast<int>(i) + 2)) return;
          at = at * a.dim(0, static_cast<int>(i) + 2) + x[i + 2];
        }
        const S v = a.load_at(0, x);
        if (place < 0 || v > best || (scalar::is_nan(v) && !scalar::is_nan(best)))
          best = v, place = at;
      });
      a.store_at(0, best, y);
      a.store_i_at(1, place, y);
    });
  }
};

// [n, c, spatial…] -> [n, c, all of it].
Var flat(Var x) {
  Dim n = 1;
  for (int d = 2; d < x.rank(); ++d) {
    auto product = mul(n, x.dim(d));
    if (!product.ok()) return x.builder().fail(std::move(product).error());
    n = *product;
  }
  return reshape(x, {x.dim(0), x.dim(1), n});
}
}  // namespace

Var max_pool(Var x, std::vector<int64_t> kernel, const WindowOptions& options,
             const PoolOptions& pool, Loc loc) {
  Attrs attrs = window_attrs(pool.ceil_mode ? reaching_over(x.shape(), kernel, options) : options,
                             static_cast<int>(kernel.size()));
  attrs.set("kernel", std::move(kernel));
  return x.builder().emit(max_pool_op, std::move(attrs), {x}, loc);
}

constinit const OpDef max_pool_op = {
    .name = "max_pool",
    .formula = "y[n, c, o] = max over k of x[n, c, stride o + dilation k - lo], and where",
    .group = "reduction",
    .dims_fn = dims,
    .types = "F -> F, i32",
    .attrs = {{"kernel", AttrKind::kInts, true, "per spatial dim"},
              {"stride", AttrKind::kInts, true, "between windows"},
              {"lo", AttrKind::kInts, true, "padding before"},
              {"hi", AttrKind::kInts, true, "padding after"},
              {"dilation", AttrKind::kInts, true, "between a window's elements"}},
    .bytes =
        [](const OpCall& c) {
          const auto w = windows(c);
          const Shape &x = c.shape(0), &y = c.out[0].shape;
          int64_t read = size_bytes(c.in[0].dtype) * x[0].bound() * x[1].bound();
          for (int d = 2; w.ok() && d < x.rank(); ++d)
            read *= (*w)[d - 2].touched(x[d].bound(), y[d].bound());
          return Bytes{read, c.out[0].bytes() + c.out[1].bytes()};
        },
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      const Var x = flat(c.in[0]);
      return {
          reshape(scatter_add(flat(c.grad[0]), flat(c.out[1]), 2, x.dim(2), 2), c.in[0].shape())};
    },
    .jvp = [](Builder&, const JvpCall& c) -> Grads {
      return {reshape(gather(flat(c.tangent[0]), flat(c.out[1]), 2, 2), c.out[0].shape()), Var()};
    },
    .reference = reference_of<Ref>,
    .samples =
        [] {
          auto f = [](Shape s) { return SampleInput{{DType::kF32, s}}; };
          auto by = [](std::vector<int64_t> kernel, WindowOptions o) {
            Attrs a = window_attrs(o, static_cast<int>(kernel.size()));
            a.set("kernel", std::move(kernel));
            return a;
          };
          return std::vector<Sample>{
              {"1d", {f({2, 3, 7})}, by({3}, {})},
              {"2d, halved", {f({2, 3, 6, 4})}, by({2, 2}, {{2, 2}})},
              {"overlapping, padded", {f({1, 2, 5, 6})}, by({3, 3}, {{2, 2}, {1, 1}, {1, 1}})},
              {"3d", {f({1, 2, 4, 3, 4})}, by({2, 2, 2}, {{2, 1, 2}})},
              {"padding alone", {f({1, 2, 5})}, by({2}, {{}, {2}, {0}}), "leaves windows"},
              {"ranks", {f({2, 3, 7})}, by({3, 3}, {}), "2 spatial dims"}};
        },
};

}  // namespace tegula
