// y = the ranks' x side by side along a dim, on all of them.
#include "tegula/ops/common/collective.h"

namespace tegula {

namespace {
Result<DimMap> dims(const OpCall& c) {
  TEGULA_TRY(check_group_dim(c, "dim", false));
  const GroupCall g(c);
  Shape y = c.shape(0);
  y[static_cast<int>(g.dim)] = TEGULA_TRY(mul(y[static_cast<int>(g.dim)], Dim(g.n)));
  return collective_dims(c, y);
}

// Index i of part p of rank r's operand is index i of share r of part p of the result.
void together(const OpCall& c, std::span<const TensorRef> in, std::span<const TensorRef> out) {
  const GroupCall g(c);
  const auto dim = static_cast<size_t>(g.dim);
  const int64_t share = in[0].shape[dim] / g.parts;
  for (size_t r = 0; r < in.size(); ++r)
    for_each_index(shape_of(in[r]), [&](const Index& i) {
      Index to = i;
      to[dim] = (i[dim] / share * g.n + static_cast<int64_t>(r)) * share + i[dim] % share;
      const double x = load_element(in[r], RefTensors::offset_at(in[r], i));
      for (const TensorRef& t : out) store_element(t, RefTensors::offset_at(t, to), x);
    });
}

int64_t sent_bytes(const OpCall& c, int64_t) { return (GroupCall(c).n - 1) * c.in[0].bytes(); }

constexpr CollectiveDef kTogether = {.sent_bytes = sent_bytes, .reference = together};
}  // namespace

constinit const OpDef all_gather_op = group_op({
    .name = "all_gather",
    .formula = "y = x_0, x_1, ... of the ranks, side by side along a dim",
    .source = "Thakur, Rabenseifner, Gropp 2005, section 4.1",
    .dims_fn = dims,
    .attrs = {{"axis", AttrKind::kString, true, "of the mesh: along which the group lies"},
              {"ranks", AttrKind::kInt, true, "in the group"},
              {"dim", AttrKind::kInt, true, "along which ranks' operands are laid"},
              {"parts", AttrKind::kInt, false, "of the dim, each laid by itself; 1 if absent"},
              {"background", AttrKind::kBool, false, kBackgroundDoc},
              {"algorithm", AttrKind::kString, false, kAlgorithmDoc}},
    .check = [](const OpCall& c) { return check_group_dim(c, "dim", false); },
    .vjp = [](Builder& b, const VjpCall& c) -> Grads {
      return {b.emit(reduce_scatter_op, c.attrs(), {c.grad[0]})};
    },
    .samples =
        [] {
          const Attrs alone{{"axis", std::string("tp")},
                            {"ranks", int64_t{1}},
                            {"dim", int64_t{1}},
                            {"parts", int64_t{3}}};
          Attrs no_dim = alone, parts = alone;
          no_dim.set("dim", int64_t{3}), parts.set("parts", int64_t{4});
          return collective_samples(
              {{"alone", alone}},
              {{no_dim, "must be one of constant extent"}, {parts, "not a multiple of 4"}}, true);
        },
    .collective = &kTogether,
});

}  // namespace tegula
