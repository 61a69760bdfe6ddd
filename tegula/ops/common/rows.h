// Shared by ops over the last dim, which see their operands as rows.
#pragma once

#include "tegula/ops/common/elementwise.h"

namespace tegula {

// Softmax, the norms and their gradients have this in common; `def` brings the rest. A row is never
// cut.
constexpr OpDef norm_op(OpDef def) {
  def.group = "normalisation", def.split = {{"d", Combine::kNever}};
  def.precision = Precision::kHigh;
  return def;
}

// Calls fn(index) for every row of t; index's last entry is the caller's to set. Statistics of a
// row, shaped like t without its last dim, take the same index.
template <class F>
void for_each_row(const TensorRef& t, F&& fn) {
  for_each_index(shape_of(t).first(static_cast<size_t>(t.rank - 1)), [&](const Index& row) {
    Index i = row;
    fn(i);
  });
}

// Calls fn(i, j) for j = 0, 1, … with i's entry for t's last dim set to j.
template <class F>
void for_each_in_row(const TensorRef& t, Index& i, F&& fn) {
  const auto last = static_cast<size_t>(t.rank - 1);
  for (int64_t j = 0; j < t.shape[last]; ++j) {
    i[last] = j;
    fn(i, static_cast<size_t>(j));
  }
}

// 0 in place of -inf: then exp(x - top) is 0, not NaN, in a row of -inf alone.
template <class S>
S finite(S top) {
  return top == S(-kInfinity) ? S(0.0) : top;
}
Var finite(Var top);

// The parts of softmax, log_softmax and logsumexp for the row of operand 0 at i: its largest
// element (0 where all are -inf) and the sum of exp(x - top), each of which each(j, e) sees.
template <class S>
struct RowExp {
  S top = S(-kInfinity), sum = S(0.0);
};
template <class S, class Each>
RowExp<S> row_exp(RefArgs<S>& a, Index& i, Each&& each) {
  RowExp<S> row;
  for_each_in_row(a.in[0], i, [&](const Index& at, size_t) {
    row.top = scalar::max(row.top, a.load_at(0, at));
  });
  row.top = finite(row.top);
  for_each_in_row(a.in[0], i, [&](const Index& at, size_t j) {
    const S e = scalar::exp(a.load_at(0, at) - row.top);
    row.sum += e;
    each(j, e);
  });
  return row;
}
// The same in a graph, of all rows: x - top, its exp, and the sums of that, kept as a dim of 1.
struct RowExps {
  Var centred, e, sum;
};
RowExps row_exps(Var x, Var top);
// exp(x - lse), with lse without x's last dim: softmax from a row's logsumexp, 0 in rows of -inf.
Var exp_less_lse(Var x, Var lse);

inline int64_t row_size(const Type& t) { return t.shape[t.shape.rank() - 1].bound(); }
inline int64_t row_count(const Type& t) {
  int64_t n = 1;
  for (int d = 0; d + 1 < t.shape.rank(); ++d) n *= t.shape[d].bound();
  return n;
}

// Every operand read and result written once; but without rows nothing is read, not even what all
// rows share.
inline Bytes row_bytes(const OpCall& c) {
  Bytes b;
  for (const Type& t : c.out) b.written += t.bytes();
  if (row_count(c.in[0]) == 0) return b;
  for (const Type& t : c.in) b.read += t.bytes();
  return b;
}

}  // namespace tegula
