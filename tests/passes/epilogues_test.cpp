#include "tegula/kernels/target.h"
#include "tegula/passes/fuse.h"
#include "tests/passes/passes.h"

namespace tegula {
namespace {

// How many of a function's groups became epilogues, if every dot_fused has a kernel.
template <class Write>
int joined(const Write& write, bool has_kernel = true) {
  Module m;
  Builder b(m, "step");
  write(m, b);
  const FuncId f = finish(b);
  Function fused = std::move(m[f]);
  EXPECT_TRUE(fuse_function(m, fused, true, false).ok());
  m[f] = std::move(fused);
  Target target = *find_target("h100");
  const KernelsThat kernels{[&](const OpCall& c) { return has_kernel || c.op != &dot_fused_op; }};
  PassOptions options;
  options.target = &target, options.planning = &kernels;
  const bool changed = run_checked(m, f, "epilogues", options);
  const int n = count(m[f], dot_fused_op);
  EXPECT_EQ(changed, n > 0);
  return n;
}

Var product(Builder& b, DType t = DType::kBF16) {
  return dot("m k, k n -> m n", b.param("x", {t, {6, 4}}), b.param("w", {t, {4, 5}}));
}

TEST(Epilogues, TakeInWhatTheyRead) {
  EXPECT_EQ(joined([](Module&, Builder& b) { b.result("y", gelu(product(b))); }), 1);
  EXPECT_EQ(joined([](Module&, Builder& b) { b.result("y", gelu(product(b))); }, false), 0);
}

// The product is a result beside the group's, for those who come later.
TEST(Epilogues, OthersReadTheProductLater) {
  EXPECT_EQ(joined([](Module&, Builder& b) {
              const Var p = product(b);
              const Var y = gelu(p);
              b.result("p", p), b.result("y", y), b.result("s", dot("m n, m j -> n j", p, y));
            }),
            1);
}

// A product that the group waits for in another way, too, cannot wait for the group.
TEST(Epilogues, AProductReadBeforeStays) {
  EXPECT_EQ(joined([](Module&, Builder& b) {
              const Var p = product(b);
              const Var q = dot("m n, n j -> m j", p, b.param("v", {DType::kBF16, {5, 5}}));
              b.result("y", sin(p) + softmax(q));
            }),
            0);
}

TEST(Epilogues, LeavesRowsViewsSymbolsAndShards) {
  const auto rows = [](Module&, Builder& b) {
    const Var p = product(b, DType::kF32);
    b.result("y", p / broadcast(reduce_sum(p, {1}, true), {6, 5}));
  };
  EXPECT_EQ(joined(rows), 0);
  const auto part = [](Module&, Builder& b) {
    const Var x = slice(b.param("x", {DType::kBF16, {6, 9}}), 1, 2, 4);
    b.result("y", gelu(dot("m k, k n -> m n", x, b.param("w", {DType::kBF16, {4, 5}}))));
  };
  EXPECT_EQ(joined(part), 0);
  const auto symbol = [](Module& m, Builder& b) {
    const Var x = b.param("x", {DType::kBF16, {m.add_symbol("n", 6), 4}});
    b.result("y", gelu(dot("m k, k n -> m n", x, b.param("w", {DType::kBF16, {4, 5}}))));
  };
  EXPECT_EQ(joined(symbol), 0);
  const auto shards = [](Module&, Builder& b) {
    const Var x = b.param("x", {DType::kF32, {6, 1024}}),
              w = b.param("w", {DType::kF32, {1024, 5}});
    b.result("y", gelu(dot("m k, k n -> m n", x, w)));
  };
  EXPECT_EQ(joined(shards), 0);
}

}  // namespace
}  // namespace tegula
