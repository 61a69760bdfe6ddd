// An op's reference is also its fallback kernel, in the tensors' own precision. Against f64, it
// errs no more than twice as much as its decomposition run in that precision, plus one rounding.
#include <gtest/gtest.h>

#include <cmath>

#include "tegula/ir/builder.h"
#include "tests/ops/case.h"

namespace tegula::testing {
namespace {

Result<std::vector<HostTensor>> decomposed(const Case& c) {
  Module module = c.module;
  Builder b(module, "decomposed");
  std::vector<Var> x;
  for (const Type& t : c.in) x.push_back(b.param("", t));
  OpCall call = c.call();
  call.module = &module;
  for (const Var& y : c.op->decompose(b, call, x)) b.result("", y);
  const Function f = TEGULA_TRY(b.finish());
  return interpret(module, f, c.values, Arithmetic::kNaive);
}

void check(const Case& c) {
  const auto exact = evaluate(c.call(), c.refs(), Arithmetic::kOracle);
  const auto fallback = evaluate(c.call(), c.refs(), Arithmetic::kNaive);
  const auto simple = decomposed(c);
  ASSERT_TRUE(exact.ok() && fallback.ok() && simple.ok()) << c.name();
  for (size_t r = 0; r < c.out.size(); ++r) {
    const double floor = epsilon(c.out[r].dtype) * max_abs((*exact)[r]);
    EXPECT_LE(largest_error((*fallback)[r], (*exact)[r]),
              2 * largest_error((*simple)[r], (*exact)[r]) + floor)
        << c.name() << ", result " << r;
  }
}

TEST(Fallback, IsAsExactAsTheDecomposition) {
  int n = 0;
  for (const OpDef* op : all_ops()) {
    if (!op->decompose || !op->samples) continue;
    for (const Sample& s : op->samples()) {
      if (!s.expect_error.empty()) continue;
      const Case c = make_case(*op, s, 1);
      check(c);
      ++n;
    }
  }
  EXPECT_GT(n, 50);
}

}  // namespace
}  // namespace tegula::testing
