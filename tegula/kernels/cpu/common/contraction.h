// A `dot` node as loops: its factors sorted into batch, m, n and k, with every operand's strides.
//
// out[batch, m, n] = act(scale·Σ_k a[batch, m, k]·b[batch, k, n] + bias[batch, m, n])
//
// Attributes: `dims` names each operand's factors (base/dot_dims.h), "b m k, b k n -> b m n"; a
// `bias` has the n factors in the output's order. A factor in both inputs and the output is batch,
// in the first input and the output m, in the second and the output n, in both inputs only k. Any
// order of factors, any strides.
// `k_shards` (default 1), `scale` (a float; none if absent), `bias` (default false), `activation`
// (none, relu, gelu, silu).
// With `accumulate` the third operand has the output's factors and every chain starts from it; it
// may be the output itself.
//
// Order "fma_chain": with K = the flattened k index (k factors in the first input's order,
// row-major) cut in k_shards equal consecutive shards, each shard is one chain from 0 of
// acc = fma(a_k, b_k, acc), ascending; the shards are summed in a binary tree of neighbours. f64
// chains in f64, all other floats in f32, integers wrap. The sum is rounded to the output's dtype,
// then scaled and rounded, then the bias is added and rounded, then the activation is applied and
// rounded, exactly as separate nodes would.
#pragma once

#include "tegula/kernels/kernel.h"

namespace tegula::kernel {

enum class Activation : uint8_t { kNone, kRelu, kGelu, kSilu };

enum Operand { kA, kB, kBias, kOut, kOperands };

struct Factor {
  int64_t extent = 1;
  int64_t stride[kOperands] = {};  // in elements; 0 where the operand lacks the factor
};

// Nested loops over some factors, outermost first; `count` is the product of their extents.
struct Loops {
  static constexpr int kMax = 8;
  Factor factors[kMax];
  int rank = 0;
  int64_t count = 1;

  void add(const Factor& f);
  // The element offset of flat index i (row-major, below `count`) in one operand. No division where
  // the loops are one: it would take longer than a short row.
  int64_t offset(int64_t i, Operand operand) const {
    if (rank == 0) return 0;
    int64_t off = 0;
    for (int d = rank - 1; d > 0; --d) {
      off += (i % factors[d].extent) * factors[d].stride[operand];
      i /= factors[d].extent;
    }
    return off + i * factors[0].stride[operand];
  }
  // out[j] = offset(first + j) for j in [0, n).
  void offsets(int64_t first, int64_t n, Operand operand, int64_t* out) const;
  // The one stride of the whole flat index, where there is one.
  bool is_linear(Operand operand, int64_t* stride) const;
};

struct Contraction {
  Loops batch, m, n, k;
  int64_t k_shards = 1;
  bool has_scale = false;
  double scale = 1;  // rounded to the output's dtype
  bool has_bias = false;
  bool accumulates = false;  // kBias are the sums so far
  Activation activation = Activation::kNone;
  DType in_dtype = DType::kF32;
  DType out_dtype = DType::kF32;
  // The output's last dim is an m factor: lanes belong over m.
  bool last_is_m = false;
  int64_t shard_k() const { return k.count / k_shards; }
  // Whether anything follows the rounded sum.
  bool has_epilogue() const { return has_scale || has_bias || activation != Activation::kNone; }
  // Operations per output besides the 2·K of the chain, as the op's cost counts them.
  int64_t epilogue_flops() const;
  // The same contraction with the inputs exchanged (products commute, so bits stay).
  Contraction swapped() const;
};

// Reads the attributes and operands of a call. Allocates nothing unless it fails.
// Errors: a malformed string, ranks or extents that disagree, K not divisible by k_shards.
Result<Contraction> parse_contraction(const Attrs& attrs, std::span<const TensorRef> in,
                                      std::span<const TensorRef> out);

}  // namespace tegula::kernel
