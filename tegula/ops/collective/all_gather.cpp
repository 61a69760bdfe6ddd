// y = the ranks' x side by side along a dim, on all of them.
#include "tegula/ops/common/collective.h"

namespace tegula {

namespace {
int64_t sent_bytes(const OpCall& c, int64_t) { return (GroupCall(c).n - 1) * c.in[0].bytes(); }

constexpr CollectiveDef kTogether = {.sent_bytes = sent_bytes, .reference = join_shares};
}  // namespace

constinit const OpDef all_gather_op = group_op({
    .name = "all_gather",
    .formula = "y = x_0, x_1, ... of the ranks, side by side along a dim",
    .source = "Thakur, Rabenseifner, Gropp 2005, section 4.1",
    .dims_fn = [](const OpCall& c) { return share_dims(c, false); },
    .attrs = {{"dim", AttrKind::kInt, true, "along which ranks' operands are laid"},
              {"parts", AttrKind::kInt, false, "of the dim, each laid by itself; 1 if absent"}},
    .vjp = adjoint<reduce_scatter_op>,
    .samples =
        [] {
          return collective_samples({{"dim", int64_t{1}}, {"parts", int64_t{3}}},
                                    {{{{"dim", int64_t{3}}}, "must be one of constant extent"},
                                     {{{"parts", int64_t{4}}}, "not a multiple of 4"}});
        },
    .collective = &kTogether,
});

}  // namespace tegula
