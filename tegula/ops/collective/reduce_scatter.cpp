// y = this rank's share of the sum of x over the ranks of the group.
#include "tegula/ops/common/collective.h"

namespace tegula {

namespace {
Result<DimMap> dims(const OpCall& c) {
  TEGULA_TRY(check_group_dim(c, "dim", true));
  const GroupCall g(c);
  Shape y = c.shape(0);
  y[static_cast<int>(g.dim)] = y[static_cast<int>(g.dim)].bound() / g.n;
  return collective_dims(c, y);
}

void together(const OpCall& c, std::span<const TensorRef> in, std::span<const TensorRef> out) {
  const GroupCall g(c);
  const auto dim = static_cast<size_t>(g.dim);
  const int64_t share = out[0].shape[dim] / g.parts;
  for (size_t r = 0; r < out.size(); ++r)
    for_each_index(shape_of(out[r]), [&](const Index& i) {
      Index from = i;
      from[dim] = (i[dim] / share * g.n + static_cast<int64_t>(r)) * share + i[dim] % share;
      store_element(out[r], RefTensors::offset_at(out[r], i), reduced(Combine::kSum, in, from));
    });
}

int64_t sent_bytes(const OpCall& c, int64_t) {
  const int64_t n = GroupCall(c).n;
  return c.in[0].bytes() / n * (n - 1);
}

constexpr CollectiveDef kTogether = {.sent_bytes = sent_bytes, .reference = together};
}  // namespace

constinit const OpDef reduce_scatter_op = group_op({
    .name = "reduce_scatter",
    .formula = "y = the rank's share of sum over ranks r of x_r",
    .source = "Thakur, Rabenseifner, Gropp 2005, section 4.2",
    .dims_fn = dims,
    .attrs = {{"axis", AttrKind::kString, true, "of the mesh: along which the group lies"},
              {"ranks", AttrKind::kInt, true, "in the group"},
              {"dim", AttrKind::kInt, true, "along which the sum is shared out"},
              {"parts", AttrKind::kInt, false, "of the dim, each shared out; 1 if absent"},
              {"background", AttrKind::kBool, false, kBackgroundDoc},
              {"algorithm", AttrKind::kString, false, kAlgorithmDoc}},
    .check = [](const OpCall& c) { return check_group_dim(c, "dim", true); },
    .vjp = [](Builder& b, const VjpCall& c) -> Grads {
      return {b.emit(all_gather_op, c.attrs(), {c.grad[0]})};
    },
    .samples =
        [] {
          const Attrs alone{{"axis", std::string("dp")},
                            {"ranks", int64_t{1}},
                            {"dim", int64_t{1}},
                            {"parts", int64_t{2}}};
          Attrs four = alone;
          four.set("ranks", int64_t{4});
          return collective_samples({{"alone", alone}}, {{four, "2 parts of 4 ranks"}}, true);
        },
    .collective = &kTogether,
});

}  // namespace tegula
