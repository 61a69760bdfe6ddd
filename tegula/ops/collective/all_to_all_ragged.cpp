// all_to_all of rows of which only a part is filled: lengths are data, what they may be is static.
#include "tegula/ops/common/collective.h"
#include "tegula/ops/common/rules.h"

namespace tegula {

namespace {
Status check(const OpCall& c) {
  TEGULA_TRY(check_group_dim(c, "split", true));
  TEGULA_TRY(check_group_dim(c, "gather", false));
  const int64_t split = c.attrs->i("split"), gather = c.attrs->i("gather");
  const int last = c.shape(0).rank() - 1;
  if (split != gather && split < last && gather < last) return {};
  return invalid_argument(cat("all_to_all_ragged: splits dim ", split, " of ", c.in[0],
                              " and gathers dim ", gather,
                              ": they must be two, and not the last one, along which rows lie"));
}

Result<DimMap> dims(const OpCall& c) {
  TEGULA_TRY(check(c));
  const auto split = static_cast<int>(c.attrs->i("split"));
  const auto gather = static_cast<int>(c.attrs->i("gather"));
  Shape y = c.shape(0);
  y[split] = y[split].bound() / GroupCall(c).n;
  y[gather] = TEGULA_TRY(mul(y[gather], Dim(GroupCall(c).n)));
  DimMap m = TEGULA_TRY(collective_dims(c, y));
  for (int k = 1; k <= 2; ++k) {  // the lengths have all dims but the last
    const Shape& rows = k == 1 ? c.shape(0) : y;
    Shape want;
    for (int d = 0; d + 1 < rows.rank(); ++d) want.push_back(rows[d]);
    if (!(c.shape(k) == want))
      return invalid_argument(cat("all_to_all_ragged: ", k == 1 ? "sent" : "received", " is ",
                                  c.in[k], ", must be ", want, ", a length for each row of ",
                                  rows));
    m.operands.push_back(k == 1 ? m.operands[0] : m.results[0]);
    m.operands.back().pop_back();
  }
  m.finish();
  return m;
}

// y's row i has what the giver's row has of it, then zeros.
void together(const OpCall& c, std::span<const TensorRef> in, std::span<const TensorRef> out) {
  const auto split = static_cast<size_t>(c.attrs->i("split"));
  const auto gather = static_cast<size_t>(c.attrs->i("gather"));
  const int64_t share = out[0].shape[split], piece = in[0].shape[gather];
  for (size_t to = 0; to < out.size(); ++to)
    for_each_index(shape_of(out[to]), [&](const Index& i) {
      const TensorRef* giver = &in[static_cast<size_t>(i[gather] / piece) * c.in.size()];
      Index at = i;
      at[split] = static_cast<int64_t>(to) * share + i[split];
      at[gather] = i[gather] % piece;
      const auto last = static_cast<size_t>(out[to].rank - 1);
      const int64_t length = load_int(giver[1], RefTensors::offset_at(giver[1], at));
      const double value =
          i[last] < length ? load_element(giver[0], RefTensors::offset_at(giver[0], at)) : 0;
      store_element(out[to], RefTensors::offset_at(out[to], i), value);
    });
}

// Sends at most what it would if all rows were full.
constexpr CollectiveDef kTogether = {
    .sent_bytes = bytes_of_others, .reference = together, .is_bound = true};

struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    TEGULA_CHECK(
        a.attrs().i("ranks") == 1,
        "all_to_all_ragged of several ranks cannot be run by one: interpret them together");
    const int last = a.call.shape(0).rank() - 1;
    for_each_index(shape_of(a.out[0]), [&](const Index& i) {
      const bool is_sent = i[static_cast<size_t>(last)] < a.load_i_at(1, i);
      a.store_at(0, is_sent ? a.load_at(0, i) : S(0.0), i);
    });
  }
};

std::vector<Sample> samples() {
  const SampleInput x = {{DType::kF32, {2, 3, 4}}};
  const SampleInput lengths = {{DType::kI32, {2, 3}}, 0, 0, {4, 0, 2, 1, 3, 4}};
  const Attrs alone{{"axis", std::string("ep")},
                    {"ranks", int64_t{1}},
                    {"split", int64_t{1}},
                    {"gather", int64_t{0}}};
  Attrs same = alone, rows = alone, four = alone;
  same.set("gather", int64_t{1}), rows.set("split", int64_t{2}), four.set("ranks", int64_t{4});
  const SampleInput few = {{DType::kI32, {2}}};
  Sample filled = {"alone", {x, lengths, lengths}, alone};
  filled.cost_bound = "what lies behind a row's length is not read";
  return {std::move(filled),
          {"split and gathered", {x, lengths, lengths}, same, "they must be two"},
          {"along rows", {x, lengths, lengths}, rows, "not the last one"},
          {"four", {x, lengths, lengths}, four, "not a multiple of"},
          {"too few lengths", {x, few, lengths}, alone, "a length for each row"}};
}
}  // namespace

constinit const OpDef all_to_all_ragged_op = group_op<kInBackground>({
    .name = "all_to_all_ragged",
    .formula = "all_to_all of the first sent[row] elements of each row of x; the others of y are 0",
    .source = "Lepikhin et al. 2020, section 3.2",
    .dims_fn = dims,
    .types = "T, i, i -> T",
    .attrs = {{"split", AttrKind::kInt, true, "the dim of x of which each rank gets its share"},
              {"gather", AttrKind::kInt, true, "the dim along which what a rank gets is laid"}},
    .check = check,
    .vjp = [](Builder& b, const VjpCall& c) -> Grads {
      return {b.emit(all_to_all_ragged_op, turned(c.attrs()), {c.grad[0], c.in[2], c.in[1]}), Var(),
              Var()};
    },
    .jvp = jvp_of_first,
    .reference = reference_with_ints<Ref>,
    .samples = samples,
    .collective = &kTogether,
});

}  // namespace tegula
