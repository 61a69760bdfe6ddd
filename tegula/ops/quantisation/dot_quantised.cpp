// y = x (q scale): weights of 8 or 4 bits, a scale for each column of a group of rows.
#include "tegula/ops/dot_quantised.h"

#include "tegula/ir/sum_shards.h"
#include "tegula/ops/common/quantised_weights.h"

namespace tegula {

namespace {
struct Sizes : QuantisedWeights {
  int64_t shards;
  explicit Sizes(const OpCall& c)
      : QuantisedWeights(c, 1), shards(c.attrs->get_or<int64_t>("k_shards", 1)) {}
};

Status check(const OpCall& c) {
  const Sizes s(c);
  TEGULA_TRY(s.check(c));
  if (s.shards != 1 && s.shards != 2 && s.shards != 4 && s.shards != 8)
    return invalid_argument(cat("dot_quantised: k_shards is ", s.shards, ", must be 1, 2, 4 or 8"));
  if (s.k % s.shards != 0 || (s.packed && s.k / s.shards % 2 != 0))
    return invalid_argument(
        cat("dot_quantised: k_shards ", s.shards, " does not divide k=", s.k, " in whole bytes"));
  return {};
}

struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const Sizes z(a.call);
    const int64_t e = z.groups == 0 ? 1 : z.k / z.groups;
    std::vector<S> sum(static_cast<size_t>(z.m * z.shards));
    for (int64_t n = 0; n < z.n; ++n) {
      std::fill(sum.begin(), sum.end(), S(0.0));
      for (int64_t k = 0; k < z.k; ++k) {
        const S w = z.load(a, k, n) * a.load(2, k / e, n);
        const int64_t shard = k / (z.k / z.shards);
        for (int64_t m = 0; m < z.m; ++m) {
          S& to = sum[static_cast<size_t>(m * z.shards + shard)];
          to = scalar::fma(a.load(0, m, k), w, to);
        }
      }
      for (int64_t m = 0; m < z.m; ++m) {
        S* part = sum.data() + m * z.shards;
        for (int64_t step = 1; step < z.shards; step *= 2)
          for (int64_t i = 0; i < z.shards; i += 2 * step) part[i] = part[i] + part[i + step];
        a.store(0, part[0], m, n);
      }
    }
  }
};

std::vector<Var> decompose(Builder&, const OpCall& c, std::span<const Var> in) {
  const Sizes s(c);
  Var q = cast(in[1], DType::kF32);
  if (s.packed) {
    const Var high = floor(q * (1.0 / 16)), low = q - high * 16.0;
    const Shape row = {Dim(s.k / 2), Dim(1), Dim(s.n)};
    const Var halves[] = {reshape(low, row), reshape(high, row)};
    q = concat(halves, 1) - 8.0;
  }
  const Shape grouped = {Dim(s.groups), Dim(s.k / s.groups), Dim(s.n)};
  const Var scale = broadcast(reshape(in[2], {Dim(s.groups), Dim(1), Dim(s.n)}), grouped);
  const Var w = reshape(reshape(q, grouped) * scale, {Dim(s.k), Dim(s.n)});
  return {dot("m k, k n -> m n", in[0], w)};
}
}  // namespace

Var dot_quantised(Var x, Var q, Var scale, int bits, Loc loc) {
  Attrs a;
  if (bits != 8) a.set("bits", int64_t{bits});
  // As dot's: a function of the shape alone.
  const Dim k = x.dim(-1);
  if (k.is_const() && k.bound() >= kLeastSummed && k.bound() % (2 * kMostShards) == 0)
    a.set("k_shards", kMostShards);
  return x.builder().emit(dot_quantised_op, std::move(a), {x, q, scale}, loc);
}

constinit const OpDef dot_quantised_op = {
    .name = "dot_quantised",
    .formula = "y[m, n] = sum over k of x[m, k] (q[k, n] scale[k / e, n])",
    .source = "Jacob et al. 2018, section 2.1; groups: Frantar et al. 2023, section 4",
    .group = "quantisation",
    .dims_fn = [](const OpCall& c) { return quantised_dims(c); },
    .types_fn = [](const OpCall& c) { return quantised_types(c, DType::kF32); },
    .attrs = {{"bits", AttrKind::kInt, false, "of a weight: 8 (default), or 4, two in a byte"},
              {"k_shards", AttrKind::kInt, false, "as dot's"}},
    .check = check,
    .flops =
        [](const OpCall& c) {
          const Sizes s(c);
          return s.n * s.k + s.m * s.n * (2 * s.k + s.shards - 1);
        },
    .decompose = decompose,
    .reference = reference_of<Ref>,
    .samples =
        [] {
          const DType f32 = DType::kF32;
          const SampleInput x = {{f32, {3, 8}}, -1, 1}, q = {{DType::kI8, {8, 5}}, -127, 127},
                            half = {{DType::kU8, {4, 5}}, 0, 255};
          const auto scale = [&](int64_t groups) {
            return SampleInput{{f32, {groups, 5}}, 0, 0.02};
          };
          const Attrs four{{"bits", int64_t{4}}}, shards{{"k_shards", int64_t{4}}};
          return std::vector<Sample>{
              {"a scale a column", {x, q, scale(1)}, {}},
              {"groups of two rows", {x, q, scale(4)}, {}},
              {"shards", {x, q, scale(2)}, shards},
              {"four bits", {x, half, scale(2)}, four},
              {"one row", {{{f32, {1, 8}}, -1, 1}, half, scale(1)}, four},
              {"rows misfit", {x, half, scale(1)}, {}, "must be f32, i8, f32"},
              {"shards misfit", {x, q, scale(1)}, {{"k_shards", int64_t{3}}}, "must be 1, 2, 4"}};
        },
};

}  // namespace tegula
