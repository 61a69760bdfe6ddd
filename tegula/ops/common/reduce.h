// Shared by reductions. Order: over trailing dims, 16 strided partials and a tree ("lane16"); over
// any others, one ascending chain per output; of sums of f32 both in parts, so that the error does
// not grow with their length (tile/long_sum.h).
#pragma once

#include "tegula/ops/common/elementwise.h"

namespace tegula {

inline constexpr InlineList<AttrDef, 16> kReduceAttrs = {
    {"dims", AttrKind::kInts, true, "which dims, ascending"},
    {"keep", AttrKind::kBool, false, "keep them with extent 1"}};

std::vector<Sample> reduce_samples();
// Reductions have this in common; `def` brings the rest.
constexpr OpDef reduction(OpDef def) {
  def.group = "reduction", def.types = "T -> T", def.attrs = kReduceAttrs;
  def.flops = [](const OpCall& c) { return c.in[0].shape.numel(); };
  if (!def.samples) def.samples = reduce_samples;
  def.is_reduction = true;
  return def;
}

bool is_reduced(const Attrs& a, int d);
// The operand's shape with reduced dims of extent 1.
Shape kept_shape(const Var& x, const Attrs& a);

Result<DimMap> reduce_dims(const OpCall& c, Combine combine);
template <Combine C>
Result<DimMap> reduce_dims(const OpCall& c) {
  return reduce_dims(c, C);
}

// Derivatives of max and min. Ties share equally, so that the rule is symmetric.
Var extremum_share(const Var& x, const Var& y, const Attrs& a);
Grads extremum_vjp(Builder& b, const VjpCall& c);
Grads extremum_jvp(Builder& b, const JvpCall& c);

// The loops of a reduction's reference.
class ReduceLoops {
 public:
  explicit ReduceLoops(const RefTensors& a);
  // The operand's first index for a result's.
  Index first(const Index& result) const;
  // Calls fn(i) for every index of the reduced dims, put into i.
  template <class F>
  void for_each(Index& i, F&& fn) const {
    for_each_index(inner_, [&](const Index& r) {
      set(i, r);
      fn(i);
    });
  }

 private:
  void set(Index& i, const Index& reduced) const;
  bool keep_;
  std::vector<int64_t> inner_;
  std::vector<size_t> inner_dims_, outer_dims_;
};

// Init<S>(dtype) is what an empty reduction gives.
template <auto Init, auto Step>
struct ReduceRef {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const ReduceLoops loops(a);
    for_each_index(shape_of(a.out[0]), [&](const Index& o) {
      Index i = loops.first(o);
      S acc = Init.template operator()<S>(a.out[0].dtype);
      loops.for_each(i, [&](const Index& at) {
        const S x = a.load_at(0, at);
        acc = Step(acc, x);
      });
      a.store_at(0, acc, o);
    });
  }
};

}  // namespace tegula
