// y = the x of one other rank: each rank sends to one at most, and receives from one at most.
#include "tegula/ops/common/collective.h"

namespace tegula {

namespace {
Status check(const OpCall& c) {
  TEGULA_TRY(check_group(c));
  const auto& from = c.attrs->ints("from");
  const int64_t n = GroupCall(c).n;
  if (static_cast<int64_t>(from.size()) != n)
    return invalid_argument(
        cat("send_recv: ", from.size(), " ranks are said to receive, the group has ", n));
  std::vector<uint8_t> sends(from.size());
  for (const int64_t giver : from) {
    if (giver < -1 || giver >= n)
      return invalid_argument(
          cat("send_recv: from ", giver, ": must be one of ", n, " ranks, or -1 for none"));
    if (giver >= 0 && sends[static_cast<size_t>(giver)]++ > 0)
      return invalid_argument(
          cat("send_recv: rank ", giver, " sends twice: broadcast_from sends to all"));
  }
  return {};
}

void together(const OpCall& c, std::span<const TensorRef> in, std::span<const TensorRef> out) {
  const auto& from = c.attrs->ints("from");
  for (size_t r = 0; r < out.size(); ++r)
    for_each_index(shape_of(out[r]), [&](const Index& i) {
      const double x =
          from[r] < 0 ? 0
                      : load_element(in[static_cast<size_t>(from[r])],
                                     RefTensors::offset_at(in[static_cast<size_t>(from[r])], i));
      store_element(out[r], RefTensors::offset_at(out[r], i), x);
    });
}

int64_t sent_bytes(const OpCall& c, int64_t index) {
  const auto& from = c.attrs->ints("from");
  for (size_t r = 0; r < from.size(); ++r)
    if (from[r] == index && static_cast<int64_t>(r) != index) return c.in[0].bytes();
  return 0;
}

// Alone, what comes from nobody is not read.
Bytes bytes(const OpCall& c) {
  const bool is_read = GroupCall(c).n > 1 || c.attrs->ints("from")[0] == 0;
  return {is_read ? c.in[0].bytes() : 0, c.out[0].bytes()};
}

constexpr CollectiveDef kTogether = {.sent_bytes = sent_bytes, .reference = together};

// A rank that nobody sends to has zeros, so one that sends to nobody has none of the gradient.
Var sent_back(Builder& b, const Attrs& attrs, Var x) {
  const auto& from = attrs.ints("from");
  std::vector<int64_t> back(from.size(), -1);
  for (size_t r = 0; r < from.size(); ++r)
    if (from[r] >= 0) back[static_cast<size_t>(from[r])] = static_cast<int64_t>(r);
  Attrs a = attrs;
  a.set("from", back);
  return b.emit(send_recv_op, std::move(a), {x});
}

// Alone it sends to itself, or receives nothing.
struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const bool keeps = a.attrs().ints("from")[0] == 0;
    TEGULA_CHECK(a.attrs().i("ranks") == 1, a.call.op->name,
                 " of several ranks cannot be run by one: interpret them together");
    for_each_index(shape_of(a.out[0]),
                   [&](const Index& i) { a.store_at(0, keeps ? a.load_at(0, i) : S(0), i); });
  }
};
}  // namespace

constinit const OpDef send_recv_op = group_op<kInBackground>({
    .name = "send_recv",
    .formula = "y = x of rank from[r], where from[r] = -1 zeros",
    .source = "Chan et al. 2007, section 3",
    .attrs = {{"from", AttrKind::kInts, true, "per rank: from which it receives; -1: from none"}},
    .check = check,
    .bytes = bytes,
    .vjp = [](Builder& b, const VjpCall& c) -> Grads {
      return {sent_back(b, c.attrs(), c.grad[0])};
    },
    .reference = reference_with_ints<Ref>,
    .samples =
        [] {
          using Ints = std::vector<int64_t>;
          return collective_samples(
              {{"from", Ints{0}}},
              {{{{"from", Ints{-1}}}, ""},
               {{{"from", Ints{0, 0}}}, "the group has 1"},
               {{{"from", Ints{1}}}, "must be one of 1 ranks"},
               {{{"ranks", int64_t{2}}, {"from", Ints{0, 0}}}, "rank 0 sends twice"}},
              "");
        },
    .collective = &kTogether,
});

}  // namespace tegula
