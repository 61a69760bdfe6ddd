// What conv, its gradients and max_pool share: attributes of windows, sizes, factors, views.
//
// x: [n, groups·c, spatial…], w: [groups·d, c, kernel…], y: [n, groups·d, o…].
#pragma once

#include "tegula/base/saturating.h"
#include "tegula/base/sizes.h"
#include "tegula/ops/conv.h"
#include "tegula/ops/elementwise.h"

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

struct ConvShapes {
  std::vector<Window> windows;
  Dim n;
  int64_t groups = 1;
  int64_t c = 0, d = 0;        // channels of a group, in x and in y
  std::vector<Dim> size, out;  // spatial dims of x and of y
  int rank() const { return static_cast<int>(windows.size()); }
  int64_t kernel_numel() const;
  Shape x() const;
  Shape w() const;
  Shape y() const;
};

// `roles` says which of x, w, y the operands are: "xw" for conv; "yw" (with attribute "size") for
// its gradient to x; "xy" (with attribute "kernel") for that to w.
Result<ConvShapes> conv_shapes(const OpCall& c, std::string_view roles);
Result<DimMap> conv_dims(const OpCall& c, std::string_view roles);
// The attributes of a part: paddings and sizes of a cut window, groups.
Attrs conv_localize(const OpCall& c, const DimMap& m, int factor, int64_t lo, int64_t hi);
int64_t conv_flops(const OpCall& c, std::string_view roles);
Bytes conv_bytes(const OpCall& c, std::string_view roles);
// The attributes of a sibling whose result is x ("size" from its shape), w ("kernel") or y.
Attrs conv_attrs(const Attrs& from, char result, const Shape& shape);
// The op of one group after another, where splitting the group dim would take a ninth dim. Each
// operand is cut at its dim into parts of that size; results are joined at `result_dim`.
struct GroupCut {
  int dim = 0;
  int64_t size = 0;
};
std::vector<Var> conv_by_group(Builder& b, const OpCall& c, std::span<const Var> in, GroupCut first,
                               GroupCut second, int result_dim);

// Every spatial dim (from dim 2 on) of x padded and unfolded: [n, c, o0, k0, o1, k1, …].
Var unfold_windows(Var x, std::span<const Window> windows, std::span<const Dim> out);
// dot of a conv's operands; per spatial dim i of an operand come its `per_dim` letters with i after
// them: operand "nc" with "ok" is "n c o0 k0 o1 k1".
struct ConvTerm {
  std::string_view lead, per_dim;
};
Var conv_dot(Var a, ConvTerm a_dims, Var b, ConvTerm b_dims, ConvTerm result, int rank);
// Splits or joins the group dim at `dim`: [.., groups·c, ..] <-> [.., groups, c, ..].
Var split_groups(Var x, int dim, int64_t groups);
Var join_groups(Var x, int dim);

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
