#include "tegula/ops/attention.h"
#include "tests/passes/passes.h"

namespace tegula {
namespace {

FuncId attends(Module& m) {
  Builder b(m, "f");
  const Type t = {DType::kF32, {1, 4, 2, 8}};
  b.result("o", attention(b.param("q", t), b.param("k", t), b.param("v", t), {}).o);
  return finish(b);
}

PassOptions with_kernels(const Planning& planning, DType compute) {
  PassOptions o;
  o.planning = &planning, o.compute_dtype = compute;
  return o;
}

// A kernel of bf16 alone: the op stays for autocast, unless that is not wanted.
TEST(Lower, WhatHasAKernelInTheLowDtypeStays) {
  const KernelsThat of_bf16(
      [](const OpCall& c) { return c.op != &attention_op || c.in[0].dtype == DType::kBF16; });
  for (const DType compute : {DType::kBF16, DType::kF32}) {
    Module m;
    const FuncId f = attends(m);
    EXPECT_EQ(run(m, f, "lower", with_kernels(of_bf16, compute)), compute == DType::kF32);
    EXPECT_EQ(count(m[f], attention_op), compute == DType::kF32 ? 0 : 1);
  }
}

TEST(Lower, WhatHasNoneIsDecomposed) {
  Module m;
  const FuncId f = attends(m);
  const KernelsThat none([](const OpCall& c) { return c.op != &attention_op; });
  EXPECT_TRUE(run(m, f, "lower", with_kernels(none, DType::kBF16)));
  EXPECT_EQ(count(m[f], attention_op), 0);
}

}  // namespace
}  // namespace tegula
