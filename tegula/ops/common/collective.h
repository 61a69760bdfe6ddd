// Shared by collectives: their attributes, shapes and loops.
#pragma once

#include "tegula/ops/collective.h"
#include "tegula/ops/common/elementwise.h"

namespace tegula {

struct GroupCall {
  int64_t n = 1, dim = 0, parts = 1;
  explicit GroupCall(const OpCall& c)
      : n(c.attrs->i("ranks")),
        dim(c.attrs->get_or<int64_t>("dim", 0)),
        parts(c.attrs->get_or<int64_t>("parts", 1)) {}
};

// Error: no rank; a dim that the operand has not, or that parts and ranks (`shrinks`: of the
// operand) do not divide.
Status check_group(const OpCall& c);
Status check_group_dim(const OpCall& c, std::string_view dim, bool shrinks);
// The root of an op must be one of the ranks.
Status check_root(const OpCall& c);

// The meaning of the attribute "background" in every collective in which ranks meet but once.
inline constexpr std::string_view kBackgroundDoc =
    "from where it stands up to whoever reads it, beside the work in between";

// The meaning of the attribute "algorithm", which a planner sets that has measured
// (plan/comm_table.h).
inline constexpr std::string_view kAlgorithmDoc =
    "how it is done, round by round; each rank takes from all at once if absent";

// A dim that is read or written whole, so that nobody cuts it a second time.
DimExpr uncut(DimMap& m, Dim size);
// The dims of an op of one operand and one result that differ in the named dims alone.
Result<DimMap> collective_dims(const OpCall& c, const Shape& result);

// The tree over neighbours of element i of all ranks' tensors, rounded to their dtype.
double reduced(Combine combine, std::span<const TensorRef> in, const Index& i);
Combine combine_of(const Attrs& attrs);

// Alone in its group (ranks = 1) a rank keeps what it has; a reference for more is the group's.
struct AloneRef {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    TEGULA_CHECK(a.attrs().i("ranks") == 1, a.call.op->name,
                 " of several ranks cannot be run by one: interpret them together");
    for_each_index(shape_of(a.out[0]), [&](const Index& i) { a.store_at(0, a.load_at(0, i), i); });
  }
};

// Collectives have this in common; `def` brings the rest. Where it says nothing else: a result of
// the operand's type and shape, of which a rank alone keeps what it has, and linear.
constexpr OpDef group_op(OpDef def) {
  def.group = "collective";
  def.has_effect = true;
  if (!def.dims_fn) def.dims_fn = [](const OpCall& c) { return collective_dims(c, c.shape(0)); };
  if (def.types.empty()) def.types = "T -> T";
  if (!def.reference.f64) def.reference = reference_with_ints<AloneRef>;
  if (!def.jvp)
    def.jvp = [](Builder& b, const JvpCall& c) -> Grads {
      return {b.emit(*c.call->op, c.attrs(), {c.tangent[0]})};
    };
  return def;
}

std::vector<Sample> collective_samples(std::vector<std::pair<std::string_view, Attrs>> valid,
                                       std::vector<std::pair<Attrs, std::string_view>> wrong,
                                       bool has_algorithms = false);
std::vector<Sample> samples_with_root();

}  // namespace tegula
