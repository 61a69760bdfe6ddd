// d[b] = max |x[32b ..]| / 127, q = round(x / d): rows of 8 bits with a scale for 32 values.
#include <limits>

#include "tegula/ops/common/blocks.h"
#include "tegula/ops/common/rules.h"

namespace tegula {

namespace {
Result<DimMap> dims(const OpCall& c) {
  const Shape& x = c.shape(0);
  const Dim k = x.rank() > 0 ? x[x.rank() - 1] : Dim(1);
  if (!k.is_const() || k.bound() % kQuantisedRun != 0)
    return invalid_argument(
        cat("quantise_blocks: the last dim of ", c.in[0], " is no multiple of ", kQuantisedRun));
  MapMaker m(1, 2);
  for (int d = 0; d + 1 < x.rank(); ++d) {
    const uint8_t f = m.factor(cat("d", d), x[d]);
    m.operand(0, f), m.result(0, x[d], f), m.result(1, x[d], f);
  }
  const Dim runs = k.bound() / kQuantisedRun;
  const uint8_t b = m.factor("b", runs), i = m.factor("i", kQuantisedRun, true);
  const DimExpr run{0, {{b, kQuantisedRun}, {i, 1}}};
  m.operand(0, run), m.result(0, k, run), m.result(1, runs, b);
  return std::move(m).done();
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
