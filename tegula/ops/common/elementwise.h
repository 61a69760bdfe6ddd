// Shared by elementwise ops: dims, cost, reference loop, samples. One op = one file that names its
// scalar function and its derivative.
#pragma once

#include "tegula/base/algorithm.h"
#include "tegula/ir/reference.h"
#include "tegula/ops/math.h"
#include "tegula/ops/table.h"
#include "tegula/tile/builder.h"

namespace tegula {

inline constexpr std::string_view kUnaryDims = "... -> ...";
inline constexpr std::string_view kBinaryDims = "..., ... -> ...";
inline constexpr std::string_view kTernaryDims = "..., ..., ... -> ...";

template <int64_t N>
int64_t per_element(const OpCall& c) {
  return N * c.out[0].shape.numel();
}

// Samples over shapes that matter: scalar, odd, empty; values in [low, high].
std::vector<Sample> unary_samples(double low, double high, DType dtype = DType::kF32);
std::vector<Sample> binary_samples(double low, double high, DType dtype = DType::kF32);

// Elementwise ops have this in common; `def` brings the rest. Types say how many operands there
// are; left out, they are "F -> F". An element takes one operation where nothing else is said, and
// none by per_element<0>: such ops are free to passes. Samples lie in [-2, 2] unless others are
// said.
constexpr OpDef elementwise(OpDef def) {
  def.group = "elementwise";
  def.is_elementwise = true;
  if (def.types.empty() && !def.types_fn) def.types = "F -> F";
  const size_t n_more = static_cast<size_t>(std::count(def.types.begin(), def.types.end(), ','));
  constexpr std::string_view kDims[] = {kUnaryDims, kBinaryDims, kTernaryDims};
  if (def.dims.empty()) def.dims = kDims[n_more];
  if (def.flops == per_element<0>)
    def.flops = nullptr;
  else if (!def.flops)
    def.flops = per_element<1>;
  if (!def.samples && n_more == 0) def.samples = [] { return unary_samples(-2, 2); };
  if (!def.samples && n_more == 1) def.samples = [] { return binary_samples(-2, 2); };
  return def;
}

template <auto Fn>
struct UnaryRef {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    for_each_index(shape_of(a.out[0]),
                   [&](const Index& i) { a.store_at(0, S(Fn(a.load_at(0, i))), i); });
  }
};
template <auto Fn>
struct BinaryRef {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    for_each_index(shape_of(a.out[0]), [&](const Index& i) {
      a.store_at(0, S(Fn(a.load_at(0, i), a.load_at(1, i))), i);
    });
  }
};
// Compares and logical ops: the functor gives a bool.
template <auto Fn>
struct PredicateRef {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    for_each_index(shape_of(a.out[0]), [&](const Index& i) {
      const bool y = Fn(a.load_at(0, i), a.load_at(1, i));
      a.store_at(0, S(y ? 1.0 : 0.0), i);
    });
  }
};

// Lowerings to the tile language.
template <tile::Op O>
tile::Reg tile_unary(tile::Builder& b, const OpCall&, std::span<const tile::Reg> in) {
  return b.unary(O, in[0]);
}
template <tile::Op O>
tile::Reg tile_binary(tile::Builder& b, const OpCall&, std::span<const tile::Reg> in) {
  return b.binary(O, in[0], in[1]);
}
template <tile::Op O>
tile::Reg tile_reduce(tile::Builder& b, const OpCall&, std::span<const tile::Reg> in) {
  return b.reduce(O, in[0]);
}

// Σ over inputs is the builder's job; a rule returns one gradient per operand, invalid = zero.
using Grads = std::vector<Var>;

// Known to be zero: a broadcast constant 0, as autodiff passes for a further result's absent
// gradient. A rule then leaves a term out.
bool is_zero(Var v);

}  // namespace tegula
