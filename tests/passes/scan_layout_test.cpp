#include "tegula/ops/control.h"
#include "tests/passes/passes.h"

namespace tegula {
namespace {

// h = tanh(h wᵀ + x) for n rows over the steps.
FuncId transposed_product(Module& m, int64_t rows, int64_t steps) {
  Builder b(m, "f");
  const Var h = b.param("h", {DType::kF32, {rows, 4}}), w = b.weight("w", {DType::kF32, {4, 4}});
  const Var x = b.param("x", {DType::kF32, {steps, rows, 4}});
  const auto out = scan(b, {h}, {x}, {w}, [](Builder&, Vars c, Vars xs, Vars in) -> StepResult {
    const Var next = tanh(dot("m k, n k -> m n", c[0], in[0]) + xs[0]);
    return {{next}, {next}};
  });
  b.result("h", out.carry[0]), b.result("y", out.ys[0]);
  return finish(b);
}

std::string dims_inside(const Module& m, FuncId f) {
  return only(m[only(m[f], scan_op)->regions[0]], dot_op)->attrs.str("dims");
}

TEST(ScanLayout, AMatrixIsTransposedOnce) {
  Module m;
  const FuncId f = transposed_product(m, 3, 9);
  const Function before = m[f];
  EXPECT_TRUE(run(m, f, "scan_layout"));
  EXPECT_EQ(dims_inside(m, f), "m k, k n -> m n");
  EXPECT_EQ(count(m[f], copy_op), 1);
  expect_same_bits(m, before, m[f]);
  EXPECT_FALSE(run(m, f, "scan_layout"));
}

TEST(ScanLayout, NotForManyRowsNorFewStepsNorUnderABudget) {
  for (const auto& [rows, steps] : {std::pair<int64_t, int64_t>{65, 9}, {3, 7}}) {
    Module m;
    const FuncId f = transposed_product(m, rows, steps);
    EXPECT_FALSE(run(m, f, "scan_layout")) << rows;
  }
  Module m;
  const FuncId f = transposed_product(m, 3, 9);
  PassOptions budget;
  budget.remat = Remat::kBudget;
  EXPECT_FALSE(run(m, f, "scan_layout", budget));
}

}  // namespace
}  // namespace tegula
