// y = x rstd w over the last dim; also gives rstd = 1/sqrt(mean(x^2) + eps).
#include "tegula/ops/common/rows.h"
#include "tegula/ops/norm.h"

namespace tegula {

namespace {
double eps_of(const Attrs& a) { return a.get_or<double>("eps", 1e-5); }

struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const TensorRef& x = a.in[0];
    const S eps = S(eps_of(a.attrs()));
    const S share = S(1.0 / static_cast<double>(x.shape[x.rank - 1]));
    for_each_row(x, [&](Index& i) {
      S squares = S(0.0);
      for_each_in_row(x, i, [&](const Index& at, size_t) {
        const S v = a.load_at(0, at);
        squares = scalar::fma(v, v, squares);
      });
      const S rstd = S(1.0) / scalar::sqrt(squares * share + eps);
      for_each_in_row(x, i, [&](const Index& at, size_t j) {
        a.store_at(0, a.load_at(0, at) * rstd * a.load(1, j), at);
      });
      a.store_at(1, rstd, i);
    });
  }
};

Grads vjp(Builder& b, const VjpCall& c) {
  const Var in[] = {c.in[0], c.in[1], c.out[1], c.grad[0]};
  auto g = b.emit_n(rms_norm_bwd_op, {}, in);
  if (!is_zero(c.grad[1])) {  // d rstd/dx = -rstd^3 x/d
    const Var rstd = unsqueeze(c.out[1], -1);
    const Var x = cast(c.in[0], rstd.dtype());
    const Var slope = unsqueeze(c.grad[1], -1) * rstd * rstd * rstd;
    g[0] = g[0] - cast(slope * x / extent(x, -1, x.dtype()), c.in[0].dtype());
  }
  return {g[0], g[1]};
}

std::vector<Var> decompose(Builder&, const OpCall& c, std::span<const Var> in) {
  const DType type = in[0].dtype(), sums = accumulator(type);
  const Var x = cast(in[0], sums);
  const Var rstd = rsqrt(reduce_mean(x * x, {-1}, true) + eps_of(*c.attrs));
  return {cast(x * rstd * cast(in[1], sums), type), squeeze(rstd, -1)};
}

std::vector<Sample> samples() {
  auto in = [](Shape x, DType t = DType::kF32) {
    return std::vector<SampleInput>{{{t, x}}, {{t, {6}}}};
  };
  const Attrs eps{{"eps", 1e-3}};
  return {{"rows", in({2, 3, 6}), eps},
          {"one row", in({6}), {}},
          {"no rows", in({0, 6}), eps},
          {"zeros", {{{DType::kF32, {1, 6}}, 0, 0}, {{DType::kF32, {6}}}}, {{"eps", 0.1}}},
          {"bf16", in({4, 6}, DType::kBF16), eps},
          {"weight misfits", in({4, 5}), eps, "weight has d=6, x has d=5"},
          {"weight missing", {{{DType::kF32, {4, 6}}}}, eps, "takes 2 operands, got 1"}};
}
}  // namespace

Var rms_norm(Var x, Var weight, double eps, Loc loc) {
  const Var in[] = {x, weight};
  return x.builder().emit_n(rms_norm_op, {{"eps", eps}}, in, {}, loc)[0];
}

constinit const OpDef rms_norm_op = norm_op({
    .name = "rms_norm",
    .formula = "y = x rstd w, rstd = 1/sqrt(mean(x^2) + eps)",
    .source = "Zhang and Sennrich 2019, section 3",
    .dims = "x: ... d, weight: d -> ... d, ...",
    .types = "F, F -> F, A",
    .attrs = {{"eps", AttrKind::kFloat, false, "added to the mean square; 1e-5 if absent"}},
    .flops = [](const OpCall& c) { return row_count(c.in[0]) * (4 * row_size(c.in[0]) + 4); },
    .bytes = row_bytes,
    .vjp = vjp,
    .decompose = decompose,
    .reference = reference_of<Ref>,
    .samples = samples,
    .is_rowwise = true,
});

}  // namespace tegula
