// Shared by window ops (conv, its gradients, pooling): a window's attributes, sizes and view.
#pragma once

#include "tegula/base/saturating.h"
#include "tegula/base/sizes.h"
#include "tegula/ops/common/elementwise.h"
#include "tegula/ops/conv.h"

namespace tegula {

// One spatial dim of a window op.
struct Window {
  int64_t stride = 1, lo = 0, hi = 0, dilation = 1, kernel = 1;
  int64_t reach() const { return saturating_mul(dilation, kernel - 1); }
  // Where element k of window o lies in the input; may be outside.
  int64_t at(int64_t o, int64_t k) const { return stride * o + dilation * k - lo; }
  // Number of windows on an input of that size.
  Result<Dim> count(std::string_view op, Dim size) const;
  // Distinct elements of an input of that size that n windows reach.
  int64_t touched(int64_t size, int64_t n) const;
  // Those of n windows that reach into it.
  int64_t touching(int64_t size, int64_t n) const;
};

// From attributes stride, lo, hi and dilation (absent: 1); checks their number and ranges.
Result<std::vector<Window>> windows_of(const OpCall& c, std::span<const int64_t> kernel);
// The attributes of these options, with defaults filled in.
Attrs window_attrs(const WindowOptions& options, int rank);
// The options with as much padding after x as one more window needs, wherever one would begin
// within x and reach over the end (PoolOptions::ceil_mode).
WindowOptions reaching_over(const Shape& x, std::span<const int64_t> kernel, WindowOptions options);

// Every spatial dim (from dim 2 on) of x padded and unfolded: [n, c, o0, k0, o1, k1, …].
Var unfold_windows(Var x, std::span<const Window> windows, std::span<const Dim> out);
// The attributes of conv and its gradients, and one more.
template <class... A>
constexpr InlineList<AttrDef, 16> window_attr_defs(A... more) {
  return {{"stride", AttrKind::kInts, true, "per spatial dim"},
          {"lo", AttrKind::kInts, true, "padding before"},
          {"hi", AttrKind::kInts, true, "padding after"},
          {"dilation", AttrKind::kInts, true, "between a kernel's elements"},
          {"groups", AttrKind::kInt, true, "channel groups that do not see each other"},
          more...};
}

}  // namespace tegula
