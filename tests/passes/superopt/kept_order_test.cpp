// Sums before and after: the same elements in the same order, by kernels of one order.
#include "tegula/passes/superopt/kept_order.h"

#include "tegula/ops/conv.h"
#include "tegula/passes/superopt/search.h"
#include "tegula/plan/planning.h"
#include "tests/common/changed_order.h"
#include "tests/passes/passes.h"

namespace tegula {
namespace {

constexpr DType F = DType::kF32;

// A module whose function 0 is what `build` makes of a Builder.
template <class Build>
Module made(Build&& build) {
  Module m;
  Builder b(m, "f");
  b.result("y", build(b));
  finish(b);
  return m;
}
Var in(Builder& b, const char* name, Shape s, DType t = F) { return b.param(name, {t, s}); }

Var joined(const std::vector<Var>& xs, int dim) { return concat(xs, dim); }

// Both functions on the CPU's kernels.
std::string changed(const Module& before, const Module& after) {
  const PlanOptions plan;
  const PlanningFor planning(plan);
  PipelineOptions o;
  o.pass.planning = &planning;
  const auto text = test::changed_order(before, after, o);
  EXPECT_TRUE(text.ok()) << text.error().message;
  return text.ok() ? *text : "";
}

TEST(KeptOrder, ProductsMergedAndCutAgain) {
  for (const DType t : {F, DType::kBF16}) {
    const auto products = [t](bool is_merged) {
      return made([&](Builder& b) {
        const Var x = in(b, "x", {3, 7, 33}, t), v = in(b, "v", {33, 5}, t),
                  w = in(b, "w", {33, 12}, t);
        if (!is_merged)
          return joined({dot("b m k, k n -> b m n", x, v), dot("b m k, k n -> b m n", x, w)}, 2);
        const Var all = dot("b m k, k n -> b m n", x, joined({v, w}, 1));
        return joined({slice(all, 2, 0, 5), slice(all, 2, 5, 12)}, 2);
      });
    };
    EXPECT_EQ(changed(products(false), products(true)), "");
    EXPECT_EQ(changed(products(true), products(false)), "");
  }
}

TEST(KeptOrder, MovesAreFollowed) {
  const auto moved = [](bool is_plain) {
    return made([&](Builder& b) {
      const Var x = in(b, "x", {6, 10});
      if (is_plain) return tanh(x);
      const Var y = permute(reshape(permute(x, {1, 0}), {2, 5, 6}), {2, 0, 1});
      return tanh(reshape(slice(pad(y, 2, 3, 1, 2, 0), 2, 3, 5, 3), {6, 10}));
    });
  };
  EXPECT_EQ(changed(moved(true), moved(false)), "");
  const auto other = made([](Builder& b) {
    return tanh(reshape(permute(in(b, "x", {6, 10}), {1, 0}), {6, 10}));
  });
  EXPECT_NE(changed(moved(true), other).find("is made otherwise"), std::string::npos);
}

TEST(KeptOrder, LongerSumsZerosAndOtherOrdersAreSeen) {
  const auto sum = [](int kind) {
    return made([&](Builder& b) {
      const Var x = in(b, "x", {4, 6}), y = in(b, "y", {4, 9}), v = in(b, "v", {6, 5}),
                w = in(b, "w", {9, 5});
      const char* dims = "m k, k n -> m n";
      if (kind == 0) return dot(dims, x, v) + dot(dims, y, w);
      if (kind == 1) return dot(dims, joined({x, y}, 1), joined({v, w}, 0));
      if (kind == 2) return dot(dims, joined({y, x}, 1), joined({w, v}, 0));
      return dot(dims, pad(joined({x, y}, 1), 1, 0, 1, 0, 0),
                 pad(joined({v, w}, 0), 0, 0, 1, 0, 0));
    });
  };
  for (int a = 0; a < 4; ++a)
    for (int b = 0; b < 4; ++b) EXPECT_EQ(changed(sum(a), sum(b)).empty(), a == b) << a << b;
  // The lectures' enlarged kernel: sums of nine, eight of which are zeros that an infinity breaks.
  const auto convolution = [](bool is_enlarged) {
    return made([&](Builder& b) {
      const Var x = in(b, "x", {1, 3, 5, 6}), a = in(b, "a", {4, 3, 1, 1});
      if (!is_enlarged) return conv(x, a);
      ConvOptions same;
      same.lo = same.hi = {1, 1};
      return conv(x, pad(pad(a, 2, 1, 1, 0, 0), 3, 1, 1, 0, 0), same);
    });
  };
  EXPECT_NE(changed(convolution(false), convolution(true)), "");
}

TEST(KeptOrder, SumsOfColumnsAndOfRowsHaveOtherKernels) {
  const auto sum = [](bool is_of_rows) {
    return made([&](Builder& b) {
      const Var x = in(b, "x", {300, 40});
      return is_of_rows ? reduce_sum(permute(x, {1, 0}), {1}) : reduce_sum(x, {0});
    });
  };
  const Module before = sum(false), after = sum(true);
  EXPECT_EQ(superopt::difference(before, after), "");  // the very same elements in one order
  const std::string why = changed(before, after);
  EXPECT_NE(why.find("reduce_sum of 300 f32, f32: chain before, lane16 after"), std::string::npos)
      << why;
}

// Short rows are summed in lanes; perhaps a kernel declares nothing.
struct Kernels : Planning {
  int64_t lanes_below = 0;
  bool is_silent = false;
  std::string_view order_of(const OpCall& call) const override {
    if (call.op != &dot_op) return "exact";
    const int64_t n = call.out[0].shape[call.out[0].shape.rank() - 1].bound();
    return is_silent ? "" : n < lanes_below ? "lanes" : "chain";
  }
};

superopt::Found search(const Kernels& kernels, bool& changed) {
  struct Confirms : superopt::Trial {
    Result<std::vector<Timed>> time(std::span<const Module> all, double) override {
      std::vector<Timed> out(all.size(), {1, 2, true});
      out[0].times_faster = 1;
      return out;
    }
    std::string recall(uint64_t) override { return ""; }
    void keep(uint64_t, const std::string&, bool) override {}
  } trial;
  Module m;
  Builder b(m, "f");
  const Var x = in(b, "x", {4, 64, 16});
  for (const char* name : {"q", "k", "v"})
    b.result(cat(name, "_"), dot("b m k, k n -> b m n", x, b.weight(name, {F, {16, 8}})));
  const FuncId f = finish(b);
  superopt::Found found;
  Superoptimise how{.seconds = 5, .passes = "-merge_products", .trial = &trial, .found = &found};
  PassOptions o;
  o.superopt = &how, o.planning = &kernels;
  changed = run(m, f, "superopt", o);
  return found;
}

TEST(KeptOrder, ModeExactLeavesOutWhatItsKernelsSumOtherwiseAndSaysSo) {
  bool changed = false;
  EXPECT_EQ(search({}, changed).rules.size(), 1u);  // chains, merged into a chain
  EXPECT_TRUE(changed);
  Kernels kernels;
  kernels.lanes_below = 16;
  const superopt::Found lanes = search(kernels, changed);  // lanes, merged into a chain
  EXPECT_FALSE(changed);
  ASSERT_EQ(lanes.refused.size(), 1u);
  EXPECT_EQ(lanes.refused[0].first, "products_of_one_value");
  EXPECT_EQ(lanes.refused[0].second, "dot of 16 f32, f32: lanes before, chain after");
  EXPECT_EQ(lanes.lines()[1],
            "superopt: in mode exact without products_of_one_value: dot of 16 f32, f32: lanes "
            "before, chain after");
  kernels.is_silent = true;
  const superopt::Found silent = search(kernels, changed);
  EXPECT_FALSE(changed);
  ASSERT_EQ(silent.refused.size(), 1u);
  EXPECT_NE(silent.refused[0].second.find("does not say"), std::string::npos);
}

}  // namespace
}  // namespace tegula
