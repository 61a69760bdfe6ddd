// A loop over a leading dim: (carry, y_t) = body(carry, x_t, invariants), t ascending, or
// descending with `reverse`; ys stand at the places of their xs.
//
// Operands: carry…, xs… (stacked [length, …]), invariants…. Results: the last carry…, ys stacked…,
// and for every carry named in `saves` its values before each step, stacked: what reverse mode
// needs (common/scan.cpp): one checkpoint a step.
#include "tegula/ops/common/scan.h"

#include "tegula/ops/common/elementwise.h"
#include "tegula/ops/common/regions.h"

namespace tegula {

namespace {
struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const ScanLayout l(a.call);
    touch_all(a);
    std::vector<HostTensor> next;
    for (size_t i = 0; i < l.n_carry; ++i) {
      copy_into(a.out[i], a.in[i]);
      next.push_back(copy_of(a.out[i]));
    }
    const int64_t n = l.n_xs > 0 ? a.dim(l.n_carry, 0) : l.length.bound();
    for (int64_t step = 0; step < n; ++step) {
      const int64_t t = a.attrs().flag("reverse") ? n - 1 - step : step;
      std::vector<TensorRef> in, out;
      for (size_t i = 0; i < a.in.size(); ++i)
        in.push_back(i < l.n_carry             ? a.out[i]
                     : i < l.first_invariant() ? slice_at(a.in[i], t)
                                               : a.in[i]);
      for (size_t i = 0; i < l.n_carry; ++i) out.push_back(next[i].ref());
      for (size_t i = 0; i < l.n_ys; ++i) out.push_back(slice_at(a.out[l.n_carry + i], t));
      for (size_t i = 0; i < l.saves.size(); ++i)
        copy_into(slice_at(a.out[l.n_carry + l.n_ys + i], t), a.out[l.saves[i]]);
      a.run_region(a, 0, in, out);
      for (size_t i = 0; i < l.n_carry; ++i) copy_into(a.out[i], next[i].ref());
    }
  }
};

// A recurrence h = tanh(h w + x), y = h · h; and one whose body sees its own index.
std::vector<FuncId> recurrence(Module& m) {
  Builder b(m, "recurrence");
  const Type h = {DType::kF32, {2, 3}};
  const Var c = b.param("h", h), x = b.param("x", h), w = b.param("w", {DType::kF32, {3, 3}});
  const Var next = tanh(matmul(c, w) + x);
  b.result("h", next), b.result("y", next * next);
  return {*b.finish_into_module()};
}

std::vector<FuncId> counting(Module& m) {
  Builder b(m, "counting");
  const Var i = b.param("i", {DType::kI64, {}}), s = b.param("s", {DType::kF32, {}});
  b.result("i", i + 1.0), b.result("s", s * 0.5 + cast(i, DType::kF32)), b.result("y", s);
  return {*b.finish_into_module()};
}

std::vector<Sample> samples() {
  const SampleInput h = {{DType::kF32, {2, 3}}}, x = {{DType::kF32, {4, 2, 3}}},
                    w = {{DType::kF32, {3, 3}}};
  auto attrs = [](int64_t n_carry, int64_t n_xs, int64_t length) {
    return Attrs{{"n_carry", n_carry}, {"n_xs", n_xs}, {"length", std::vector<Dim>{length}}};
  };
  Attrs reversed = attrs(1, 1, 4), saving = attrs(1, 1, 4);
  reversed.set("reverse", true), saving.set("saves", std::vector<int64_t>{0});
  Sample plain{"recurrence", {h, x, w}, attrs(1, 1, 4)};
  plain.regions = recurrence;
  Sample back = plain, saved = plain, none = plain, misfit = plain, fewer = plain;
  back.name = "reversed", back.attrs = reversed;
  saved.name = "saves its carry", saved.attrs = saving;
  none.name = "no steps", none.attrs = attrs(1, 1, 0), none.in[1].type.shape[0] = 0;
  misfit.name = "x too short", misfit.in[1].type.shape[0] = 3;
  misfit.expect_error = "its dim 0 must be 4";
  fewer.name = "no invariant", fewer.in.pop_back(), fewer.expect_error = "takes 3 parameters";
  Sample count{"no xs", {{{DType::kI64, {}}, 0, 3}, {{DType::kF32, {}}}}, attrs(2, 0, 5)};
  count.regions = counting;
  return {plain, back, saved, none, misfit, fewer, count};
}

constexpr RegionDef kRegions = {.parts = {{"the body", RegionRole::kBody}},
                                .carries = "n_carry",
                                .slices = "n_xs",
                                .length = "length",
                                .reverse = "reverse",
                                .saves = "saves"};
}  // namespace

constinit const OpDef scan_op = {
    .name = "scan",
    .formula = "(c, y_t) = body(c, x_t, invariants), t = 0 .. length-1",
    .source = "Blelloch 1990 (the name); Yu et al. 2018, section 5.1 (its gradient)",
    .group = "control",
    .attrs = {{"n_carry", AttrKind::kInt, true, "how many operands are carried"},
              {"n_xs", AttrKind::kInt, true, "how many are taken step by step"},
              {"length", AttrKind::kDims, true, "number of steps"},
              {"reverse", AttrKind::kBool, false, "from the last step to the first"},
              {"saves", AttrKind::kInts, false, "carries whose values before each step are given"}},
    .regions = &kRegions,
    .flops = region_flops,
    .vjp = scan_vjp,
    .jvp = scan_jvp,
    .reference = reference_of<Ref>,
    .samples = samples,
};

}  // namespace tegula
