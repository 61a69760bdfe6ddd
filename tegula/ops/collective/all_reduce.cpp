// y = the sum, largest or smallest of x over the ranks of the group, on all of them.
#include "tegula/ops/common/collective.h"

namespace tegula {

namespace {
Status check(const OpCall& c) {
  const auto how = c.attrs->get_or<std::string>("combine", "sum");
  if (how != "sum" && how != "max" && how != "min")
    return invalid_argument(cat("all_reduce: combine ", how, " is not sum, max or min"));
  return check_group(c);
}

void together(const OpCall& c, std::span<const TensorRef> in, std::span<const TensorRef> out) {
  const Combine how = combine_of(*c.attrs);
  for_each_index(shape_of(out[0]), [&](const Index& i) {
    const double y = reduced(how, in, i);
    for (const TensorRef& t : out) store_element(t, RefTensors::offset_at(t, i), y);
  });
}

// A rank gives away what others sum, then its own sum to all of them.
int64_t sent_bytes(const OpCall& c, int64_t index) {
  const GroupCall g(c);
  const int64_t n = c.in[0].shape.numel();
  const auto [lo, hi] = share_of(n, index, g.n);
  return ((n - (hi - lo)) + (g.n - 1) * (hi - lo)) * size_bytes(c.in[0].dtype);
}

constexpr CollectiveDef kTogether = {
    .sent_bytes = sent_bytes, .reference = together, .n_meetings = 2};
}  // namespace

constinit const OpDef all_reduce_op = group_op<kByAlgorithm>({
    .name = "all_reduce",
    .formula = "y = sum (max, min) over ranks r of x_r",
    .source = "Thakur, Rabenseifner, Gropp 2005, section 4",
    .attrs = {{"combine", AttrKind::kString, false, "sum, max or min; sum if absent"}},
    .check = check,
    .vjp = [](Builder& b, const VjpCall& c) -> Grads {
      if (combine_of(c.attrs()) != Combine::kSum)
        return {b.fail(unsupported("all_reduce: only a sum has a gradient"))};
      return {b.emit(all_reduce_op, c.attrs(), {c.grad[0]})};
    },
    .jvp = [](Builder& b, const JvpCall& c) -> Grads {
      if (combine_of(c.attrs()) != Combine::kSum)
        return {b.fail(unsupported("all_reduce: only a sum has a derivative"))};
      return {b.emit(all_reduce_op, c.attrs(), {c.tangent[0]})};
    },
    .samples =
        [] {
          return collective_samples({}, {{{{"ranks", int64_t{0}}}, "a group of 0 ranks"},
                                         {{{"combine", std::string("mean")}}, "is not sum"}});
        },
    .collective = &kTogether,
});

}  // namespace tegula
