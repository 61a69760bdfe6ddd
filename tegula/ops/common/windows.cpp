#include "tegula/ops/common/windows.h"

#include "tegula/base/algorithm.h"

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

Var unfold_windows(Var x, std::span<const Window> windows, std::span<const Dim> out) {
  for (size_t i = 0; i < windows.size(); ++i)
    x = pad(x, static_cast<int>(i) + 2, windows[i].lo, windows[i].hi, 0, 0.0);
  for (size_t i = 0; i < windows.size(); ++i)
    x = unfold(x, static_cast<int>(2 * i) + 2, out[i], windows[i].kernel, windows[i].stride,
               windows[i].dilation);
  return x;
}

}  // namespace tegula
