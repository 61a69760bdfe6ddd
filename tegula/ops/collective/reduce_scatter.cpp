// y = this rank's share of the sum of x over the ranks of the group.
#include "tegula/ops/common/collective.h"

namespace tegula {

namespace {
constexpr CollectiveDef kTogether = {.sent_bytes = bytes_of_others, .reference = share_out_sum};
}  // namespace

constinit const OpDef reduce_scatter_op = group_op({
    .name = "reduce_scatter",
    .formula = "y = the rank's share of sum over ranks r of x_r",
    .source = "Thakur, Rabenseifner, Gropp 2005, section 4.2",
    .dims_fn = [](const OpCall& c) { return share_dims(c, true); },
    .attrs = {{"dim", AttrKind::kInt, true, "along which the sum is shared out"},
              {"parts", AttrKind::kInt, false, "of the dim, each shared out; 1 if absent"}},
    .vjp = adjoint<all_gather_op>,
    .samples =
        [] {
          return collective_samples({{"dim", int64_t{1}}, {"parts", int64_t{2}}},
                                    {{{{"ranks", int64_t{4}}}, "2 parts of 4 ranks"}});
        },
    .collective = &kTogether,
});

}  // namespace tegula
