// What linear_cross_entropy and linear_cross_entropy_bwd share.
#pragma once

#include "tegula/ops/linear_cross_entropy.h"
#include "tegula/ops/rows.h"

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

// w's dims in a spec; v is cut by what targets select.
inline std::string_view weight_dims(const Attrs& a) { return a.flag("transposed") ? "d v" : "v d"; }
inline Result<DimMap> cross_entropy_dims(const OpCall& c, std::string_view spec) {
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

// The same in nodes: x, w, logits [..., v] in the accumulator's type, and where v is the target.
struct CrossEntropyGraph {
  Var x, w;            // [t, d], [v, d] or [d, v]
  Var logits, picked;  // [t, v]; picked: bool
};
CrossEntropyGraph cross_entropy_graph(const OpCall& c, std::span<const Var> in);
// Names for the dims of x before its last, for a dot: "a b ".
std::string leading_dims(Var x);

}  // namespace tegula
