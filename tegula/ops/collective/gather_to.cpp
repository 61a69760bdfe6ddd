// y = the ranks' x side by side along a dim, on one of them; zeros on the others.
#include "tegula/ops/common/collective.h"

namespace tegula {

namespace {
void together(const OpCall& c, std::span<const TensorRef> in, std::span<const TensorRef> out) {
  for (const TensorRef& y : out)
    for_each_index(shape_of(y),
                   [&](const Index& i) { store_element(y, RefTensors::offset_at(y, i), 0); });
  join_shares(c, in, out.subspan(static_cast<size_t>(c.attrs->i("root")), 1));
}

// The root takes all operands but its own.
int64_t sent_bytes(const OpCall& c, int64_t index) {
  return index == c.attrs->i("root") ? 0 : c.in[0].bytes();
}

constexpr CollectiveDef kTogether = {.sent_bytes = sent_bytes, .reference = together};
}  // namespace

constinit const OpDef gather_to_op = group_op({
    .name = "gather_to",
    .formula =
        "y = x_0, x_1, ... of the ranks, side by side along a dim, on rank root, elsewhere 0",
    .source = "Chan et al. 2007, section 3",
    .dims_fn = [](const OpCall& c) { return share_dims(c, false); },
    .attrs = {{"root", AttrKind::kInt, true, "the rank that gets them"},
              {"dim", AttrKind::kInt, true, "along which ranks' operands are laid"}},
    .check = check_root,
    .vjp = adjoint<scatter_from_op>,
    .samples = [] { return samples_with_root(true); },
    .collective = &kTogether,
});

}  // namespace tegula
