// y = sx (x q) scale: rows of 8 bits by weights of 8 or 4 bits, integer sums.
#include "tegula/ops/dot_i8.h"

#include "tegula/ops/common/quantised_weights.h"

namespace tegula {

namespace {
constexpr int64_t kMostGroup = 131071;  // · 128 · 128 fits 31 bits

struct Sizes : QuantisedWeights {
  explicit Sizes(const OpCall& c) : QuantisedWeights(c, 2) {}
};

Status check(const OpCall& c) {
  const Sizes s(c);
  TEGULA_TRY(s.check(c));
  if (s.groups > 0 && s.k / s.groups > kMostGroup)
    return invalid_argument(cat("dot_i8: groups of ", s.k / s.groups, " of k, at most ", kMostGroup,
                                ": give more scales"));
  return {};
}

struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const Sizes z(a.call);
    constexpr int64_t kExact = 1024;  // products of so many k have an exact sum in any S
    const int64_t e = z.groups == 0 ? 0 : z.k / z.groups;
    for (int64_t m = 0; m < z.m; ++m)
      for (int64_t n = 0; n < z.n; ++n) {
        S y = S(0.0);
        for (int64_t g = 0; g < z.groups; ++g) {
          int64_t sum = 0;
          for (int64_t k0 = g * e; k0 < (g + 1) * e; k0 += kExact) {
            S part = S(0.0);
            for (int64_t k = k0; k < std::min(k0 + kExact, (g + 1) * e); ++k)
              part = scalar::fma(a.load(0, m, k), z.load(a, k, n), part);
            sum += static_cast<int64_t>(static_cast<double>(part));
          }
          y = scalar::fma(S(static_cast<double>(sum)), a.load(3, g, n), y);
        }
        a.store(0, y * a.load(1, m), m, n);
      }
  }
};
}  // namespace

Var dot_i8(Var x, Var sx, Var q, Var scale, int bits, Loc loc) {
  Attrs a;
  if (bits != 8) a.set("bits", int64_t{bits});
  return x.builder().emit(dot_i8_op, std::move(a), {x, sx, q, scale}, loc);
}

constinit const OpDef dot_i8_op = {
    .name = "dot_i8",
    .formula = "y[m, n] = sx[m] sum over g of scale[g, n] (sum over k in g of x[m, k] q[k, n])",
    .source = "Jacob et al. 2018, section 2.2; Yao et al. 2022, section 4.1",
    .group = "quantisation",
    .dims_fn = [](const OpCall& c) { return quantised_dims(c, ", m"); },
    .types_fn = [](const OpCall& c) { return quantised_types(c, DType::kI8); },
    .attrs = {{"bits", AttrKind::kInt, false, "of a weight: 8 (default), or 4, two in a byte"}},
    .check = check,
    .flops =
        [](const OpCall& c) {
          const Sizes s(c);
          return s.m * s.n * (2 * s.k + 2 * s.groups + 1);
        },
    .reference = reference_of<Ref>,
    .samples =
        [] {
          const DType f32 = DType::kF32, i8 = DType::kI8;
          const SampleInput x = {{i8, {3, 8}}, -128, 127}, sx = {{f32, {3}}, 0, 0.01},
                            q = {{i8, {8, 5}}, -128, 127}, half = {{DType::kU8, {4, 5}}, 0, 255};
          const auto scale = [&](int64_t groups) {
            return SampleInput{{f32, {groups, 5}}, -0.02, 0.02};
          };
          const Attrs four{{"bits", int64_t{4}}};
          const SampleInput row = {{i8, {1, 1200}}, -128, 127}, one = {{f32, {1}}, 0, 0.01},
                            tall = {{i8, {1200, 40}}, -128, 127}, flat = {{f32, {3, 40}}, 0, 0.02};
          const SampleInput rows = {{i8, {20, 96}}, -128, 127}, many = {{f32, {20}}, 0, 0.01},
                            wide = {{DType::kU8, {48, 70}}, 0, 255}, two = {{f32, {2, 70}}, 0, 1};
          return std::vector<Sample>{
              {"a scale a column", {x, sx, q, scale(1)}, {}},
              {"groups of two rows", {x, sx, q, scale(4)}, {}},
              {"four bits", {x, sx, half, scale(2)}, four},
              {"sums past 24 bits", {row, one, tall, flat}, {}},
              {"many rows", {rows, many, wide, two}, four},
              {"rows misfit", {x, sx, half, scale(1)}, {}, "must be i8, f32, i8, f32"},
              {"bits", {x, sx, q, scale(1)}, {{"bits", int64_t{2}}}, "not 8 or 4"}};
        },
};

}  // namespace tegula
