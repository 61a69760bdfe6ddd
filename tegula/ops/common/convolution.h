// conv and its two gradients are one sum, which leaves one of three tensors open:
//
//   Σ x[n, g c, stride·o + dilation·k − lo] · w[g d, c, k] · y[n, g d, o]
//
// x: [n, groups·c, spatial…], w: [groups·d, c, kernel…], y: [n, groups·d, o…]. The open one is the
// result and the other two, in this order, are the operands: conv leaves y open (operands x, w),
// conv_bwd_data x (operands y, w; its spatial dims are attribute "size"), conv_bwd_filter w
// (operands x, y; its spatial dims are attribute "kernel"). So dims, cost, derivatives,
// decomposition and reference are written once, for any of them.
#pragma once

#include "tegula/ops/common/windows.h"

namespace tegula {

// One of the three: 'x', 'w' or 'y'.
using ConvRole = char;

// A term of the sum: an element each of x, w and y. Outside: x's element is padding, or lies
// between two windows, and the first operand counts as 0.
struct ConvTerm {
  Index x{}, w{}, y{};
  bool is_inside = true;
  const Index& of(ConvRole role) const { return role == 'x' ? x : role == 'w' ? w : y; }
};

struct ConvShapes {
  ConvRole open = 'y';
  std::vector<Window> windows;
  Dim n;
  int64_t groups = 1;
  int64_t c = 0, d = 0;        // channels of a group, in x and in y
  std::vector<Dim> size, out;  // spatial dims of x and of y
  int rank() const { return static_cast<int>(windows.size()); }
  Shape of(ConvRole role) const;
  // Extents of the factors that the open one has not, in the order of the sum.
  std::vector<int64_t> summed() const;
  // The term at an index of the open one and an index of what is summed.
  ConvTerm term(const Index& at, const Index& in) const;
};

// The operands of the op that leaves `open` open, e.g. "xw".
constexpr std::string_view conv_operands(ConvRole open) {
  return open == 'y' ? "xw" : open == 'x' ? "yw" : "xy";
}

Result<ConvShapes> conv_shapes(const OpCall& c, ConvRole open);
Result<DimMap> conv_dims(const OpCall& c, ConvRole open);
int64_t conv_flops(const OpCall& c, ConvRole open);
Bytes conv_bytes(const OpCall& c, ConvRole open);
// The sum is linear in each tensor: a gradient is the same sum, with another one open.
Grads conv_vjp(Builder& b, const VjpCall& c, ConvRole open);
// A dot over a view of unfolded windows.
std::vector<Var> conv_decompose(Builder& b, const OpCall& c, std::span<const Var> in,
                                ConvRole open);
// The attributes of a part: paddings and sizes of a cut window, groups.
Attrs conv_localize(const OpCall& c, const DimMap& m, int factor, int64_t lo, int64_t hi);

template <ConvRole kOpen>
struct ConvRef {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const ConvShapes s = *conv_shapes(a.call, kOpen);
    const std::vector<int64_t> summed = s.summed();
    for_each_index(shape_of(a.out[0]), [&](const Index& at) {
      S acc = S(0.0);
      for_each_index(summed, [&](const Index& in) {
        const ConvTerm t = s.term(at, in);
        const S first = t.is_inside ? a.load_at(0, t.of(conv_operands(kOpen)[0])) : S(0.0);
        acc = scalar::fma(first, a.load_at(1, t.of(conv_operands(kOpen)[1])), acc);
      });
      a.store_at(0, acc, at);
    });
  }
};

// The op that leaves kOpen open; `def` brings name, formula, source, attributes and samples.
template <ConvRole kOpen>
constexpr OpDef convolution(OpDef def) {
  def.group = "contraction";
  def.dims_fn = [](const OpCall& c) { return conv_dims(c, kOpen); };
  def.types = "F, F -> F";
  def.flops = [](const OpCall& c) { return conv_flops(c, kOpen); };
  def.bytes = [](const OpCall& c) { return conv_bytes(c, kOpen); };
  def.vjp = [](Builder& b, const VjpCall& c) { return conv_vjp(b, c, kOpen); };
  def.decompose = [](Builder& b, const OpCall& c, std::span<const Var> in) {
    return conv_decompose(b, c, in, kOpen);
  };
  def.reference = reference_of<ConvRef<kOpen>>;
  def.localize = conv_localize;
  def.is_multilinear = true;
  def.precision = Precision::kLow;
  return def;
}

}  // namespace tegula
