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

// A dim that is read or written whole, so that nobody cuts it a second time.
DimExpr uncut(DimMap& m, Dim size);
// The dims of an op of one operand and one result that differ in the named dims alone.
Result<DimMap> collective_dims(const OpCall& c, const Shape& result);
// Ranks' shares and the whole of them along attribute "dim": from the whole to a share (`shrinks`)
// or back. Error: as check_group_dim.
Result<DimMap> share_dims(const OpCall& c, bool shrinks);
// wholes = the shares side by side along "dim", of each of its "parts".
void join_shares(const OpCall& c, std::span<const TensorRef> shares,
                 std::span<const TensorRef> wholes);
// Each rank's share of the sum of the wholes.
void share_out_sum(const OpCall& c, std::span<const TensorRef> wholes,
                   std::span<const TensorRef> shares);
// The bytes of all shares but one of a rank's operand.
int64_t bytes_of_others(const OpCall& c, int64_t index);
// The attributes of the way back, from split along "gather" to split along "split".
Attrs turned(Attrs attrs);

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

// The gradient of op whose adjoint is `op` of the same attributes.
template <const OpDef& op>
Grads adjoint(Builder& b, const VjpCall& c) {
  return {b.emit(op, c.attrs(), {c.grad[0]})};
}

// Attributes that most collectives have.
enum UsualAttrs : uint8_t { kInBackground = 1, kByAlgorithm = 2 };

// Collectives have this in common; `def` brings the rest, with the attributes that are its own.
// Where it says nothing else: a result of the operand's type and shape, of which a rank alone keeps
// what it has, and linear.
template <int has = kInBackground | kByAlgorithm>
constexpr OpDef group_op(OpDef def) {
  def.group = "collective";
  def.has_effect = true;
  InlineList<AttrDef, 16> attrs = {
      {"axis", AttrKind::kString, true, "of the mesh: along which the group lies"},
      {"ranks", AttrKind::kInt, true, "in the group"}};
  for (const AttrDef& own : def.attrs) attrs.items[attrs.count++] = own;
  if (has & kInBackground)
    attrs.items[attrs.count++] = {
        "background", AttrKind::kBool, false,
        "from where it stands up to whoever reads it, beside the work in between"};
  if (has & kByAlgorithm)  // which a planner sets that has measured (plan/comm_table.h)
    attrs.items[attrs.count++] = {
        "algorithm", AttrKind::kString, false,
        "how it is done, round by round; each rank takes from all at once if absent"};
  def.attrs = attrs;
  if (!def.dims_fn) def.dims_fn = [](const OpCall& c) { return collective_dims(c, c.shape(0)); };
  if (def.types.empty()) def.types = "T -> T";
  if (!def.reference.f64) def.reference = reference_with_ints<AloneRef>;
  if (!def.jvp)
    def.jvp = [](Builder& b, const JvpCall& c) -> Grads {
      return {b.emit(*c.call->op, c.attrs(), {c.tangent[0]})};
    };
  return def;
}

// A rank alone with these attributes of the op's own, and the same with some changed, where the
// error is as given, or none.
struct Changed {
  Attrs attrs;
  std::string_view error;
};
std::vector<Sample> collective_samples(const Attrs& own, std::vector<Changed> changed,
                                       std::string_view algorithm = "ring");
std::vector<Sample> samples_with_root(bool has_dim);

}  // namespace tegula
