// Whole layers as steps of a random graph: what models are made of beside elementwise ops, each of
// which has a kernel of its own.
#pragma once

#include <cmath>
#include <random>

#include "tegula/ir/builder.h"
#include "tegula/ops/attention.h"
#include "tegula/ops/cumulative.h"
#include "tegula/ops/embedding.h"
#include "tegula/ops/indexing.h"
#include "tegula/ops/math.h"
#include "tegula/ops/norm.h"
#include "tegula/ops/sorting.h"

namespace tegula::testing {

// A value and what its magnitude does not exceed; no Var: the layer does not take x.
struct RandomLayer {
  Var v;
  double bound = 0;
};

// f(x) of f32 of one dim at least. `is_exact`: small integers give small integers.
inline RandomLayer random_layer(Builder& b, Var x, double bound, bool is_exact,
                                std::mt19937_64& rng) {
  const auto pick = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(rng); };
  const int rank = x.rank(), last = rank - 1;
  const int dim = static_cast<int>(pick(static_cast<size_t>(rank)));
  const auto n = static_cast<double>(x.dim(dim).bound());
  const auto width = static_cast<double>(x.dim(last).bound());
  const auto ids = [&](int64_t count) {  // 0, 1, …, as many as there are
    return iota(b, {std::min<int64_t>(count, x.dim(dim).bound())}, 0, DType::kI32);
  };
  // Slopes beside 1, so that a norm's weight is seen.
  const auto weight = [&] { return iota(b, {x.dim(last)}, 0, DType::kF32) * 0.25 + 0.5; };
  const double most = width * 0.25 + 0.5;
  switch (pick(is_exact ? 6 : 12)) {
    case 0:
      return {cumsum(x, dim, pick(2) == 0), bound * n};
    case 1:
      return {cummax(x, dim, pick(2) == 0).values, bound};
    case 2:
      return {sort(x, pick(2) == 0).values, bound};
    case 3:
      if (!x.dim(dim).is_const() || n < 1) return {};
      return {gather(x, ids(3), dim), bound};
    case 4:
      if (!x.dim(dim).is_const() || n < 1) return {};
      // Each row to place row / 2.
      return {scatter_add(x, floor_divide(ids(64), constant(b, 2, DType::kI32)), dim, x.dim(dim)),
              2 * bound};
    case 5:
      if (rank != 2 || !x.dim(0).is_const() || x.dim(0).bound() < 1) return {};
      return {embedding(x, iota(b, {2, 1}, 0, DType::kI32)), bound};
    case 6:
      return {softmax(x), 1};
    case 7:
      return {log_softmax(x), 2 * bound + std::log(width + 1)};
    case 8:
      if (!x.dim(last).is_const() || width < 1) return {};  // of nothing it is -inf
      return {logsumexp(x), bound + std::log(width)};
    case 9:
      return {rms_norm(x, weight()), std::sqrt(width) * most};
    case 10:
      return {layer_norm(x, weight(), weight()), (std::sqrt(width) + 1) * most};
    default:
      if (rank != 3 || !x.dim(last).is_const() || x.shape().numel() > 200) return {};
      const Var q = unsqueeze(x, 2);
      return {squeeze(attention(q, q * 0.5, q, {.is_causal = pick(2) == 0}).o, 2), bound};
  }
}

}  // namespace tegula::testing
