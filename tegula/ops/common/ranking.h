// Shared by sort and top_k: the order of a row, and its derivatives.
#pragma once

#include <numeric>

#include "tegula/base/algorithm.h"
#include "tegula/ops/common/rows.h"
#include "tegula/ops/indexing.h"
#include "tegula/ops/sorting.h"

namespace tegula {

// The first out_dim elements of every row's order.
template <class S>
void rank_rows(RefArgs<S>& a, bool descending) {
  const TensorRef &x = a.in[0], &y = a.out[0];
  const auto n = static_cast<size_t>(x.shape[x.rank - 1]);
  std::vector<S> row(n);
  std::vector<size_t> order(n);
  auto less = [](S p, S q) { return p < q || (scalar::is_nan(q) && !scalar::is_nan(p)); };
  for_each_row(x, [&](Index& i) {
    for_each_in_row(x, i, [&](const Index& at, size_t j) { row[j] = a.load_at(0, at); });
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t p, size_t q) {
      return descending ? less(row[q], row[p]) : less(row[p], row[q]);
    });
    for_each_in_row(y, i, [&](const Index& at, size_t j) {
      a.store_at(0, row[order[j]], at);
      a.store_i_at(1, static_cast<int64_t>(order[j]), at);
    });
  });
}

// Gradients go back to, and tangents come from, where the values did.
inline Grads ranked_vjp(Builder&, const VjpCall& c) {
  const int last = c.in[0].rank() - 1;
  return {scatter_add(c.grad[0], c.out[1], last, c.in[0].dim(last), last)};
}
inline Grads ranked_jvp(Builder&, const JvpCall& c) {
  const int last = c.in[0].rank() - 1;
  return {gather(c.tangent[0], c.out[1], last, last), Var()};
}

}  // namespace tegula
