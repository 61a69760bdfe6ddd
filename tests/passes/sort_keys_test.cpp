// Keys out of order are brought in order: the values of the op, in one attention of sorted keys.
#include <gtest/gtest.h>

#include "tegula/ops/attention.h"
#include "tests/passes/passes.h"

namespace tegula {
namespace {

FuncId attention_of(Module& m, std::vector<int64_t> k_runs, bool has_bias = false) {
  Builder b(m, "f");
  const Type t{DType::kF32, {1, 8, 2, 4}};
  const Var q = b.param("q", t), k = b.param("k", t), v = b.param("v", t);
  AttentionOptions o;
  o.is_causal = true, o.q_runs = {0, 1, 4, 12, 1, 4}, o.k_runs = std::move(k_runs);
  if (has_bias) o.bias = b.param("bias", {DType::kF32, {1, 1, 8, 8}});
  const Attention a = attention(q, k, v, o);
  b.result("o", a.o), b.result("lse", a.lse);
  return *b.finish_into_module();
}

TEST(SortKeys, BringsKeysInOrder) {
  Module m;
  const FuncId f = attention_of(m, {8, 1, 4, 0, 1, 4});
  const Function before = m[f];
  EXPECT_TRUE(run(m, f, "sort_keys"));
  EXPECT_FALSE(run(m, f, "sort_keys"));
  expect_same_bits(m, before, m[f]);
  for (const Node& n : m[f].nodes)
    if (n.op->name == "attention")
      EXPECT_EQ(n.attrs.ints("k_runs"), (std::vector<int64_t>{0, 1, 4, 8, 1, 4}));
}

TEST(SortKeys, LeavesWhatIsInOrderAndWhatCountsKeys) {
  Module m;
  EXPECT_FALSE(run_checked(m, attention_of(m, {0, 1, 4, 8, 1, 4}), "sort_keys"));
  EXPECT_FALSE(run_checked(m, attention_of(m, {8, 1, 4, 0, 1, 4}, true), "sort_keys"));
}

}  // namespace
}  // namespace tegula
