// y: from split along one dim to split along another, each pair of ranks exchanging a piece.
#include "tegula/ops/common/collective.h"

namespace tegula {

namespace {
Status check(const OpCall& c) {
  TEGULA_TRY(check_group_dim(c, "split", true));
  TEGULA_TRY(check_group_dim(c, "gather", false));
  if (c.attrs->i("split") != c.attrs->i("gather")) return {};
  return invalid_argument(
      cat("all_to_all: dim ", c.attrs->i("split"), " is both split and gathered"));
}

Result<DimMap> dims(const OpCall& c) {
  TEGULA_TRY(check(c));
  const GroupCall g(c);
  const auto split = static_cast<int>(c.attrs->i("split"));
  const auto gather = static_cast<int>(c.attrs->i("gather"));
  Shape y = c.shape(0);
  y[split] = y[split].bound() / g.n;
  y[gather] = TEGULA_TRY(mul(y[gather], Dim(g.n)));
  return collective_dims(c, y);
}

void together(const OpCall& c, std::span<const TensorRef> in, std::span<const TensorRef> out) {
  const auto split = static_cast<size_t>(c.attrs->i("split"));
  const auto gather = static_cast<size_t>(c.attrs->i("gather"));
  const int64_t share = out[0].shape[split], piece = in[0].shape[gather];
  for (size_t to = 0; to < out.size(); ++to)
    for_each_index(shape_of(out[to]), [&](const Index& i) {
      const auto from = static_cast<size_t>(i[gather] / piece);
      Index at = i;
      at[split] = static_cast<int64_t>(to) * share + i[split];
      at[gather] = i[gather] % piece;
      store_element(out[to], RefTensors::offset_at(out[to], i),
                    load_element(in[from], RefTensors::offset_at(in[from], at)));
    });
}

constexpr CollectiveDef kTogether = {.sent_bytes = bytes_of_others, .reference = together};
}  // namespace

constinit const OpDef all_to_all_op = group_op({
    .name = "all_to_all",
    .formula = "y's piece r along `gather` is this rank's share of x_r along `split`",
    .source = "Thakur, Rabenseifner, Gropp 2005, section 4.3",
    .dims_fn = dims,
    .attrs = {{"split", AttrKind::kInt, true, "the dim of x of which each rank gets its share"},
              {"gather", AttrKind::kInt, true, "the dim along which what a rank gets is laid"}},
    .check = check,
    .vjp = [](Builder& b, const VjpCall& c) -> Grads {
      return {b.emit(all_to_all_op, turned(c.attrs()), {c.grad[0]})};
    },
    .samples =
        [] {
          return collective_samples({{"split", int64_t{1}}, {"gather", int64_t{0}}},
                                    {{{{"gather", int64_t{1}}}, "both split and gathered"},
                                     {{{"ranks", int64_t{4}}}, "not a multiple of"}});
        },
    .collective = &kTogether,
});

}  // namespace tegula
