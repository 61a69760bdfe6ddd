// y = the x of one rank, on all of them.
#include "tegula/ops/common/collective.h"

namespace tegula {

namespace {
void together(const OpCall& c, std::span<const TensorRef> in, std::span<const TensorRef> out) {
  const TensorRef& x = in[static_cast<size_t>(c.attrs->i("root"))];
  for_each_index(shape_of(x), [&](const Index& i) {
    const double value = load_element(x, RefTensors::offset_at(x, i));
    for (const TensorRef& t : out) store_element(t, RefTensors::offset_at(t, i), value);
  });
}

// Each of the others takes all of it from the root.
int64_t sent_bytes(const OpCall& c, int64_t index) {
  return index == c.attrs->i("root") ? (GroupCall(c).n - 1) * c.in[0].bytes() : 0;
}

constexpr CollectiveDef kTogether = {.sent_bytes = sent_bytes, .reference = together};
}  // namespace

constinit const OpDef broadcast_from_op = group_op({
    .name = "broadcast_from",
    .formula = "y = x of rank root",
    .source = "Chan et al. 2007, section 3",
    .attrs = {{"root", AttrKind::kInt, true, "the rank whose operand it is"}},
    .check = check_root,
    .vjp = adjoint<reduce_to_op>,
    .samples = [] { return samples_with_root(false); },
    .collective = &kTogether,
});

}  // namespace tegula
