// Shared by linear_cross_entropy, its gradient and both in one.
#pragma once

#include "tegula/ops/common/rows.h"
#include "tegula/ops/linear_cross_entropy.h"

namespace tegula {

inline constexpr InlineList<AttrDef, 16> kCrossEntropyAttrs = {
    {"transposed", AttrKind::kBool, false, "w is [d, v], not [v, d]"},
    {"ignore_index", AttrKind::kInt, false, "the target that picks nothing; -100 if absent"}};

inline int64_t ignore_index(const Attrs& a) { return a.get_or<int64_t>("ignore_index", -100); }

// Sizes of a call: tokens, d, v.
struct CrossEntropyCall {
  int64_t tokens = 0, d = 0, v = 0;
  explicit CrossEntropyCall(const OpCall& c)
      : tokens(row_count(c.in[0])),
        d(row_size(c.in[0])),
        v(c.shape(1)[c.attrs->flag("transposed") ? 1 : 0].bound()) {}
};

// w's dims in a spec, where W stands for them; v is cut by what targets select.
inline std::string_view weight_dims(const Attrs& a) { return a.flag("transposed") ? "d v" : "v d"; }
inline Result<DimMap> cross_entropy_dims(const OpCall& c, std::string spec) {
  for (size_t at; (at = spec.find('W')) != std::string::npos;)
    spec.replace(at, 1, weight_dims(*c.attrs));
  DimMap m = TEGULA_TRY(solve_dims(c.op->name, spec, c.in));
  m.factors[static_cast<size_t>(m.find("v"))].index_operand = 2;
  return m;
}

// In a part of v, targets are counted from its begin.
inline Attrs localize_cross_entropy(const OpCall& c, const DimMap& m, int factor, int64_t lo,
                                    int64_t) {
  Attrs a = *c.attrs;
  if (factor == m.find("v")) a.set("ignore_index", ignore_index(a) - lo);
  return a;
}

// The logits of the token at i, in order of v; -1 if it picks none.
template <class S>
int64_t logits_of(const RefArgs<S>& a, Index& i, std::vector<S>& logits) {
  const bool transposed = a.attrs().flag("transposed");
  for (size_t n = 0; n < logits.size(); ++n) {
    S sum = S(0.0);
    for_each_in_row(a.in[0], i, [&](const Index& at, size_t e) {
      sum = scalar::fma(a.load_at(0, at), transposed ? a.load(1, e, n) : a.load(1, n, e), sum);
    });
    logits[n] = sum;
  }
  const int64_t target = a.load_i_at(2, i);
  const bool picks = target != ignore_index(a.attrs()) && target >= 0 &&
                     target < static_cast<int64_t>(logits.size());
  return picks ? target : -1;
}

// The log-sum-exp of one token's logits.
template <class S>
S log_sum_exp(const std::vector<S>& logits) {
  S top = S(-kInfinity), sum = S(0.0);
  for (const S& l : logits) top = scalar::max(top, l);
  top = finite(top);
  for (const S& l : logits) sum += scalar::exp(l - top);
  return top + scalar::log(sum);
}

// Stores the log-sum-exp of the token at i and its target's logit as results 0 and 1; returns the
// former.
template <class S>
S store_sums(RefArgs<S>& a, Index& i, const std::vector<S>& logits, int64_t target) {
  const S lse = log_sum_exp(logits);
  a.store_at(0, lse, i);
  a.store_at(1, target < 0 ? S(0.0) : logits[static_cast<size_t>(target)], i);
  return lse;
}

// Adds what the token at i adds to dw [v d], and its row of dx, stored as result `at_dx`.
template <class S>
void add_gradients(RefArgs<S>& a, Index& i, const std::vector<S>& logits, int64_t target, S lse,
                   S dlse, S dpicked, size_t at_dx, std::vector<S>& dw) {
  const bool transposed = a.attrs().flag("transposed");
  const auto d = static_cast<size_t>(row_size(a.call.in[0]));
  std::vector<S> dx(d, S(0.0));
  for (size_t n = 0; n < logits.size(); ++n) {
    const S picked = static_cast<int64_t>(n) == target ? dpicked : S(0.0);
    const S dl = scalar::fma(dlse, scalar::exp(logits[n] - lse), picked);
    for_each_in_row(a.in[0], i, [&](const Index& at, size_t e) {
      dx[e] = scalar::fma(dl, transposed ? a.load(1, e, n) : a.load(1, n, e), dx[e]);
      dw[n * d + e] = scalar::fma(dl, a.load_at(0, at), dw[n * d + e]);
    });
  }
  for_each_in_row(a.in[0], i, [&](const Index& at, size_t e) { a.store_at(at_dx, dx[e], at); });
}

// Stores dw [v d] as result `at`.
template <class S>
void store_dw(RefArgs<S>& a, size_t at, const std::vector<S>& dw, size_t v, size_t d) {
  const bool transposed = a.attrs().flag("transposed");
  for (size_t n = 0; n < v; ++n)
    for (size_t e = 0; e < d; ++e)
      transposed ? a.store(at, dw[n * d + e], e, n) : a.store(at, dw[n * d + e], n, e);
}

// Stores dx and dw as results `at` and `at + 1`, token by token in ascending order. dlse and
// dpicked are operands `given` and `given + 1`; lse_of(i, logits, target) is the token's
// log-sum-exp.
template <class S, class LseOf>
void store_gradients(RefArgs<S>& a, size_t given, size_t at, const LseOf& lse_of) {
  const CrossEntropyCall call(a.call);
  const auto d = static_cast<size_t>(call.d), v = static_cast<size_t>(call.v);
  std::vector<S> logits(v), dw(v * d, S(0.0));
  for_each_row(a.in[0], [&](Index& i) {
    const int64_t target = logits_of(a, i, logits);
    const S lse = finite(lse_of(i, logits, target));
    add_gradients(a, i, logits, target, lse, a.load_at(given, i), a.load_at(given + 1, i), at, dw);
  });
  store_dw(a, at + 1, dw, v, d);
}

// The same in nodes: x, w, logits [..., v] in the accumulator's type, and where v is the target.
struct CrossEntropyGraph {
  Var x, w;            // [t, d], [v, d] or [d, v]
  Var logits, picked;  // [t, v]; picked: bool
};
CrossEntropyGraph cross_entropy_graph(const OpCall& c, std::span<const Var> in);
// Names for the dims of x before its last, for a dot: "a b ".
std::string leading_dims(Var x);

}  // namespace tegula
