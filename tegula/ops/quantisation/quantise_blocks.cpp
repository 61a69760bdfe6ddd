// d[b] = max |x[32b ..]| / 127, q = round(x / d): rows of 8 bits with a scale for 32 values.
#include <limits>

#include "tegula/ops/common/blocks.h"

namespace tegula {

namespace {
Result<DimMap> dims(const OpCall& c) {
  const Shape& x = c.shape(0);
  const Dim k = x.rank() > 0 ? x[x.rank() - 1] : Dim(1);
  if (!k.is_const() || k.bound() % kQuantisedRun != 0)
    return invalid_argument(
        cat("quantise_blocks: the last dim of ", c.in[0], " is no multiple of ", kQuantisedRun));
  DimMap m;
  m.operands.resize(1), m.results.resize(2);
  Shape d;
  for (int i = 0; i + 1 < x.rank(); ++i) {
    const auto f = static_cast<uint8_t>(m.add_factor(cat("d", i), x[i]));
    m.operands[0].push_back({0, {{f, 1}}});
    for (auto& result : m.results) result.push_back({0, {{f, 1}}});
    d.push_back(x[i]);
  }
  const auto b = static_cast<uint8_t>(m.add_factor("b", k.bound() / kQuantisedRun));
  const auto i = static_cast<uint8_t>(m.add_factor("i", kQuantisedRun));
  m.factors[i].whole = true;
  m.operands[0].push_back({0, {{b, kQuantisedRun}, {i, 1}}});
  m.results[0].push_back({0, {{b, kQuantisedRun}, {i, 1}}});
  m.results[1].push_back({0, {{b, 1}}});
  d.push_back(k.bound() / kQuantisedRun);
  m.result_shapes = {x, d};
  m.finish();
  return m;
}

// Every step is rounded to f32, whatever S is: whole numbers hang on it.
struct Ref {
  template <class S>
  static S f32(S v) {
    return S(static_cast<double>(static_cast<float>(static_cast<double>(v))));
  }
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const auto last = static_cast<size_t>(a.in[0].rank - 1);
    for_each_index(shape_of(a.out[1]), [&](const Index& at) {
      Index from = at;
      S most = S(0.0);
      bool is_finite = true;
      for (int64_t i = 0; i < kQuantisedRun; ++i) {
        from[last] = at[last] * kQuantisedRun + i;
        const S x = a.load_at(0, from);
        most = scalar::max(most, scalar::max(x, -x));
        is_finite = is_finite && x - x == S(0.0);
      }
      const S d =
          is_finite ? f32(most * f32(S(1.0 / 127))) : S(std::numeric_limits<double>::quiet_NaN());
      const S by = f32(S(127.0) / most);
      a.store_at(1, d, at);
      for (int64_t i = 0; i < kQuantisedRun; ++i) {
        from[last] = at[last] * kQuantisedRun + i;
        const S q = scalar::floor(f32(f32(a.load_at(0, from) * by) + S(0.5)));
        a.store_at(0, is_finite && most > S(0.0) ? q : S(0.0), from);
      }
    });
  }
};
}  // namespace

QuantisedRows quantise_blocks(Var x, Loc loc) {
  const auto out = x.builder().emit_n(quantise_blocks_op, {}, std::span(&x, 1), {}, loc);
  return {out[0], out[1]};
}

constinit const OpDef quantise_blocks_op = {
    .name = "quantise_blocks",
    .formula = "d[b] = max |x[32 b ..]| / 127, q = floor(x (127 / max) + 1/2)",
    .source = "Jacob et al. 2018, section 2.1",
    .group = "quantisation",
    .dims_fn = dims,
    .types = "f32 -> i8, f32",
    .flops = [](const OpCall& c) { return 7 * c.in[0].shape.numel() + 2 * c.out[1].shape.numel(); },
    .reference = reference_of<Ref>,
    .samples =
        [] {
          const SampleInput x = {{DType::kF32, {3, 96}}, -3, 3, {}, false};
          Sample zeros{"a block of zeros", {{{DType::kF32, {64}}, -3, 3, {}, false}}};
          zeros.in[0].values = std::vector<double>(64, 0.0);
          zeros.in[0].values[40] = 1.5;
          return std::vector<Sample>{
              {"rows", {x}},
              {"leading dims", {{{DType::kF32, {2, 1, 32}}, -3, 3, {}, false}}},
              zeros,
              {"misfit", {{{DType::kF32, {3, 40}}}}, {}, "no multiple of 32"}};
        },
};

}  // namespace tegula
