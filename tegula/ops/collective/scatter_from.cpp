// y = this rank's share of the x of one rank.
#include "tegula/ops/common/collective.h"

namespace tegula {

namespace {
void together(const OpCall& c, std::span<const TensorRef> in, std::span<const TensorRef> out) {
  share_out_sum(c, in.subspan(static_cast<size_t>(c.attrs->i("root")), 1), out);
}

// Each of the others takes its share from the root.
int64_t sent_bytes(const OpCall& c, int64_t index) {
  return index == c.attrs->i("root") ? bytes_of_others(c, index) : 0;
}

constexpr CollectiveDef kTogether = {.sent_bytes = sent_bytes, .reference = together};
}  // namespace

constinit const OpDef scatter_from_op = group_op({
    .name = "scatter_from",
    .formula = "y = the rank's share of x of rank root",
    .source = "Chan et al. 2007, section 3",
    .dims_fn = [](const OpCall& c) { return share_dims(c, true); },
    .attrs = {{"root", AttrKind::kInt, true, "the rank whose operand is shared out"},
              {"dim", AttrKind::kInt, true, "along which it is shared out"}},
    .check = check_root,
    .vjp = adjoint<gather_to_op>,
    .samples = [] { return samples_with_root(true); },
    .collective = &kTogether,
});

}  // namespace tegula
