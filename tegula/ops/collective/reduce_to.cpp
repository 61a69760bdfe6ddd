// y = the sum of x over the ranks of the group, on one of them; zeros on the others.
#include "tegula/ops/common/collective.h"

namespace tegula {

namespace {
void together(const OpCall& c, std::span<const TensorRef> in, std::span<const TensorRef> out) {
  const auto root = static_cast<size_t>(c.attrs->i("root"));
  for_each_index(shape_of(out[0]), [&](const Index& i) {
    const double sum = reduced(Combine::kSum, in, i);
    for (size_t r = 0; r < out.size(); ++r)
      store_element(out[r], RefTensors::offset_at(out[r], i), r == root ? sum : 0);
  });
}

// The root reads all operands but its own.
int64_t sent_bytes(const OpCall& c, int64_t index) {
  return index == c.attrs->i("root") ? 0 : c.in[0].bytes();
}

constexpr CollectiveDef kTogether = {.sent_bytes = sent_bytes, .reference = together};
}  // namespace

constinit const OpDef reduce_to_op = group_op({
    .name = "reduce_to",
    .formula = "y = sum over ranks r of x_r on rank root, elsewhere 0",
    .source = "Chan et al. 2007, section 3",
    .attrs = {{"root", AttrKind::kInt, true, "the rank that gets the sum"}},
    .check = check_root,
    .vjp = adjoint<broadcast_from_op>,
    .samples = [] { return samples_with_root(false); },
    .collective = &kTogether,
});

}  // namespace tegula
