// y[i] = Philox(seed, stream, i) in [0, 1): depends on position alone, never on threads or ranks.
#include "tegula/base/philox.h"
#include "tegula/ops/common/rules.h"

namespace tegula {

namespace {
Result<DimMap> dims(const OpCall& c) {
  MapMaker m(1);
  int i = 0;
  for (const Dim& d : c.attrs->dims("shape")) m.result(0, d, m.factor(cat("d", i++), d));
  return std::move(m).done();
}

// A part of a larger tensor says where it lies in it (`origin`, `whole`), so that its numbers are
// the whole tensor's.
struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const auto seed = static_cast<uint64_t>(a.load_i(0));
    const auto stream = static_cast<uint64_t>(a.attrs().i("stream"));
    const AttrValue* origin = a.attrs().find("origin");
    for_each_index(shape_of(a.out[0]), [&](const Index& i) {
      int64_t linear = 0;
      for (int d = 0; d < a.out[0].rank; ++d) {
        const auto k = static_cast<size_t>(d);
        const int64_t at = i[k] + (origin ? origin->get<std::vector<int64_t>>()[k] : 0);
        const int64_t size = origin ? a.attrs().ints("whole")[k] : a.out[0].shape[d];
        linear = linear * size + at;
      }
      a.store_at(0, S(philox_uniform(seed, stream, static_cast<uint64_t>(linear))), i);
    });
  }
};

Attrs localize(const OpCall& c, const DimMap&, int factor, int64_t lo, int64_t hi) {
  Attrs a = resized(c, "shape", factor, lo, hi);
  const auto& shape = c.attrs->dims("shape");
  std::vector<int64_t> origin(shape.size(), 0), whole;
  for (const Dim& d : shape) whole.push_back(d.bound());
  if (a.has("origin")) origin = a.ints("origin"), whole = a.ints("whole");
  origin[factor] += lo;
  a.set("origin", origin), a.set("whole", whole);
  return a;
}
}  // namespace

constinit const OpDef random_uniform_op = {
    .name = "random_uniform",
    .formula = "y[i] = Philox4x32-10(seed, stream, i) in [0, 1)",
    .source = "Salmon et al. 2011, section 4",
    .group = "creation",
    .dims_fn = dims,
    .types_fn = [](const OpCall& c) -> Result<std::vector<DType>> {
      if (c.in.size() != 1 || c.in[0].dtype != DType::kI64 || c.in[0].shape.rank() != 0)
        return invalid_argument("random_uniform: seed must be an i64 scalar");
      const size_t rank = c.attrs->dims("shape").size();
      const bool is_part = c.attrs->has("origin"), has_whole = c.attrs->has("whole");
      if (rank > kMaxRank || is_part != has_whole ||
          (is_part &&
           (c.attrs->ints("origin").size() != rank || c.attrs->ints("whole").size() != rank)))
        return invalid_argument(cat("random_uniform: shape has ", rank,
                                    " dims, at most 8; origin and whole come together, with as "
                                    "many"));
      return std::vector{c.attrs->dtype("dtype")};
    },
    .attrs = {{"shape", AttrKind::kDims, true, "result shape"},
              {"stream", AttrKind::kInt, true, "which stream of the seed"},
              {"dtype", AttrKind::kDType, true, "element type"},
              {"origin", AttrKind::kInts, false, "where this part begins in the whole"},
              {"whole", AttrKind::kInts, false, "shape of the whole"}},
    .reference = reference_of<Ref>,
    .samples =
        [] {
          return std::vector<Sample>{
              {"matrix",
               {{{DType::kI64, {}}, 0, 1000}},
               {{"shape", std::vector<Dim>{4, 6}}, {"stream", 3}, {"dtype", DType::kF32}}}};
        },
    .localize = localize,
};

}  // namespace tegula
