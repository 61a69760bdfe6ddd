// y = sx (x q) scale: rows of 8 bits by weights of 8 or 4 bits, integer sums.
#include "tegula/ops/dot_i8.h"

#include "tegula/ops/elementwise.h"

namespace tegula {

namespace {
constexpr int64_t kMostGroup = 131071;  // · 128 · 128 fits 31 bits

struct Sizes {
  int64_t m, n, k, groups;
  bool packed;  // two in a byte
};
Sizes sizes_of(const OpCall& c) {
  return {c.in[0].shape[0].bound(), c.in[2].shape[1].bound(), c.in[0].shape[1].bound(),
          c.in[3].shape[0].bound(), c.attrs->get_or<int64_t>("bits", 8) == 4};
}

Result<DimMap> dims(const OpCall& c) {
  const int64_t bits = c.attrs->get_or<int64_t>("bits", 8);
  if (c.in.size() != 4 || (bits != 8 && bits != 4))
    return invalid_argument(
        cat("dot_i8: ", c.in.size(), " operands instead of 4, or bits ", bits, ", not 8 or 4"));
  DimMap m = TEGULA_TRY(solve_dims(
      "dot_i8",
      bits == 8 ? "m (g e), m, (g e) n, g n -> m n" : "m (g e half), m, (g e) n, g n -> m n",
      c.in));
  for (Factor& f : m.factors)
    if (f.name != "m" && f.name != "n") f.whole = true;
  m.finish();
  return m;
}

Status check(const OpCall& c) {
  const Sizes s = sizes_of(c);
  const int64_t rows = c.in[2].shape[0].bound();
  if (rows * (s.packed ? 2 : 1) != s.k)
    return invalid_argument(
        cat("dot_i8: q has ", rows, " rows of ", s.packed ? 4 : 8, " bits for k=", s.k));
  if (s.groups > 0 && s.k / s.groups > kMostGroup)
    return invalid_argument(cat("dot_i8: groups of ", s.k / s.groups, " of k, at most ", kMostGroup,
                                ": give more scales"));
  return {};
}

struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const Sizes z = sizes_of(a.call);
    constexpr int64_t kExact = 1024;  // products of so many k have an exact sum in any S
    const int64_t e = z.groups == 0 ? 0 : z.k / z.groups;
    for (int64_t m = 0; m < z.m; ++m)
      for (int64_t n = 0; n < z.n; ++n) {
        S y = S(0.0);
        for (int64_t g = 0; g < z.groups; ++g) {
          int64_t sum = 0;
          for (int64_t k0 = g * e; k0 < (g + 1) * e; k0 += kExact) {
            S part = S(0.0);
            for (int64_t k = k0; k < std::min(k0 + kExact, (g + 1) * e); ++k) {
              const int64_t byte = a.load_i(2, z.packed ? k / 2 : k, n);
              const int64_t q = z.packed ? (byte >> (k % 2 * 4) & 15) - 8 : byte;
              part = scalar::fma(a.load(0, m, k), S(static_cast<double>(q)), part);
            }
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
    .dims_fn = dims,
    .types_fn = [](const OpCall& c) -> Result<std::vector<DType>> {
      const DType want = c.attrs->get_or<int64_t>("bits", 8) == 4 ? DType::kU8 : DType::kI8;
      if (c.in[0].dtype != DType::kI8 || c.in[1].dtype != DType::kF32 || c.in[2].dtype != want ||
          c.in[3].dtype != DType::kF32)
        return invalid_argument(cat("dot_i8: operands are ", c.in[0], ", ", c.in[1], ", ", c.in[2],
                                    ", ", c.in[3], ", must be i8, f32, ", want, ", f32"));
      return std::vector<DType>{DType::kF32};
    },
    .attrs = {{"bits", AttrKind::kInt, false, "of a weight: 8 (default), or 4, two in a byte"}},
    .check = check,
    .flops =
        [](const OpCall& c) {
          const Sizes s = sizes_of(c);
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
