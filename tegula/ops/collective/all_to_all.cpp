// y: from split along one dim to split along another, each pair of ranks exchanging a piece.
#include "tegula/ops/common/collective.h"

namespace tegula {

namespace {
struct Dims {
  size_t split, gather;
  explicit Dims(const OpCall& c)
      : split(static_cast<size_t>(c.attrs->i("split"))),
        gather(static_cast<size_t>(c.attrs->i("gather"))) {}
};

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
  const Dims d(c);
  const int64_t share = out[0].shape[d.split], piece = in[0].shape[d.gather];
  for (size_t to = 0; to < out.size(); ++to)
    for_each_index(shape_of(out[to]), [&](const Index& i) {
      const auto from = static_cast<size_t>(i[d.gather] / piece);
      Index at = i;
      at[d.split] = static_cast<int64_t>(to) * share + i[d.split];
      at[d.gather] = i[d.gather] % piece;
      store_element(out[to], RefTensors::offset_at(out[to], i),
                    load_element(in[from], RefTensors::offset_at(in[from], at)));
    });
}

int64_t sent_bytes(const OpCall& c, int64_t) {
  const int64_t n = GroupCall(c).n;
  return c.in[0].bytes() / n * (n - 1);
}

constexpr CollectiveDef kTogether = {.sent_bytes = sent_bytes, .reference = together};

Var turned(Builder& b, const Attrs& attrs, Var x) {
  Attrs a = attrs;
  a.set("split", attrs.i("gather")), a.set("gather", attrs.i("split"));
  return b.emit(all_to_all_op, std::move(a), {x});
}
}  // namespace

constinit const OpDef all_to_all_op = group_op({
    .name = "all_to_all",
    .formula = "y's piece r along `gather` is this rank's share of x_r along `split`",
    .source = "Thakur, Rabenseifner, Gropp 2005, section 4.3",
    .dims_fn = dims,
    .attrs = {{"axis", AttrKind::kString, true, "of the mesh: along which the group lies"},
              {"ranks", AttrKind::kInt, true, "in the group"},
              {"split", AttrKind::kInt, true, "the dim of x of which each rank gets its share"},
              {"gather", AttrKind::kInt, true, "the dim along which what a rank gets is laid"},
              {"background", AttrKind::kBool, false, kBackgroundDoc},
              {"algorithm", AttrKind::kString, false, kAlgorithmDoc}},
    .check = check,
    .vjp = [](Builder& b, const VjpCall& c) -> Grads { return {turned(b, c.attrs(), c.grad[0])}; },
    .samples =
        [] {
          const Attrs alone{{"axis", std::string("cp")},
                            {"ranks", int64_t{1}},
                            {"split", int64_t{1}},
                            {"gather", int64_t{0}}};
          Attrs same = alone, four = alone;
          same.set("gather", int64_t{1}), four.set("ranks", int64_t{4});
          return collective_samples(
              {{"alone", alone}}, {{same, "both split and gathered"}, {four, "not a multiple of"}},
              true);
        },
    .collective = &kTogether,
});

}  // namespace tegula
