// y = predicate ? then(x…) : otherwise(x…): only the branch taken runs. Its gradient is the cond
// of the branches' pullbacks, which compute their branch again. Price: the dearer branch.
#include "tegula/ops/common/elementwise.h"
#include "tegula/ops/common/regions.h"

namespace tegula {

namespace {
struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    touch_all(a);
    a.run_region(a, a.load_i(0) ? 0 : 1, a.in.subspan(1), a.out);
  }
};

// The op on regions made from its own.
template <class Make>
std::vector<Var> cond_of(Builder& b, const OpCall& c, std::vector<Var> in, Make&& make) {
  std::vector<FuncId> made;
  for (FuncId r : c.regions) {
    Result<FuncId> id = make(r);
    if (!id.ok()) return b.fail(std::move(id).error()), std::vector<Var>();
    made.push_back(*id);
  }
  return b.emit_n(*c.op, {}, in, std::move(made));
}

std::vector<FuncId> branches(Module& m) {
  const Type t = {DType::kF32, {5}};
  Builder f(m, "double"), g(m, "square");
  const Var x = f.param("x", t), s = f.param("s", {DType::kF32, {}});
  f.result("y", x + x);
  f.result("z", s * 3.0);
  const Var u = g.param("x", t), v = g.param("s", {DType::kF32, {}});
  g.result("y", u * u);
  g.result("z", v + 1.0);
  const FuncId first = *f.finish_into_module();
  return {first, *g.finish_into_module()};
}

constexpr RegionDef kRegions = {
    .parts = {{"then", RegionRole::kBranch}, {"else", RegionRole::kBranch}}};
}  // namespace

constinit const OpDef cond_op = {
    .name = "cond",
    .formula = "y = predicate ? then(x) : otherwise(x)",
    .source = "Yu et al. 2018, sections 2 and 5.1",
    .group = "control",
    .regions = &kRegions,
    .flops = region_flops,
    .vjp = [](Builder& b, const VjpCall& c) -> Grads {
      auto grads =
          spread_floats(c.in.subspan(1), cond_of(b, *c.call, join_valid(c.in, c.grad),
                                                 [&](FuncId r) { return region_pullback(b, r); }));
      grads.insert(grads.begin(), Var());  // of the predicate
      return grads;
    },
    .jvp = [](Builder& b, const JvpCall& c) -> Grads {
      return spread_floats(c.out, cond_of(b, *c.call, join_valid(c.in, c.tangent), [&](FuncId r) {
                             return region_pushforward(b, r, c.tangent.subspan(1));
                           }));
    },
    .reference = reference_of<Ref>,
    .samples =
        [] {
          Sample yes{"then", {{{DType::kBool, {}}}, {{DType::kF32, {5}}}, {{DType::kF32, {}}}}, {}};
          yes.regions = branches;
          yes.in[0].values = {1};
          Sample no = yes, number = yes, misfit = yes;
          no.name = "else", no.in[0].values = {0};
          number.name = "a number decides", number.in[0] = {{DType::kF32, {}}};
          number.expect_error = "predicate must be bool[]";
          misfit.name = "another type", misfit.in[1].type.shape[0] = 4;
          misfit.expect_error = "parameter 0 (x)";
          return std::vector<Sample>{yes, no, number, misfit};
        },
};

}  // namespace tegula
