#include "tegula/ops/rope.h"
#include "tests/passes/passes.h"

namespace tegula {
namespace {

int casts_of(const Function& f, const Shape& shape) {
  int n = 0;
  for (const Node& node : f.nodes) n += node.op == &cast_op && f.type(node.output()).shape == shape;
  return n;
}

// As autocast leaves a rotation of heads between a product and attention.
TEST(MoveCasts, NothingOfARotationIsWholeInF32) {
  const KernelsThat others([](const OpCall& c) { return c.op != &rope_op; });
  PassOptions options;
  options.planning = &others;
  for (const bool is_interleaved : {false, true}) {
    Module m;
    Builder b(m, "rotation");
    const Var x = b.param("x", {DType::kBF16, {2, 16, 32}});
    const Var heads = reshape(cast(x, DType::kF32), {2, 16, 4, 8});
    b.result("y", cast(rope(heads, {}, 10000, is_interleaved), DType::kBF16));
    const FuncId f = finish(b);
    EXPECT_TRUE(run(m, f, "lower", options));
    run(m, f, "views");
    const Function before = m[f];
    EXPECT_TRUE(run(m, f, "move_casts"));
    expect_same_bits(m, before, m[f]);
    EXPECT_FALSE(run(m, f, "move_casts"));
    EXPECT_EQ(casts_of(m[f], {2, 16, 32}) + casts_of(m[f], {2, 16, 4, 8}), 0);
    EXPECT_EQ(m[f].type(only(m[f], concat_op)->output()).dtype, DType::kBF16);
  }
}

// A rotation's halves beside what is not turned, put together again with others.
TEST(MoveCasts, ThroughConcatenationsOfConcatenations) {
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", {DType::kF32, {8, 4}}), y = b.param("y", {DType::kF32, {8, 4}});
  const Var turned = reshape(concat(std::vector{neg(x), tanh(y)}, 1), {4, 16});
  b.result("z", cast(concat(std::vector{turned, reshape(neg(y), {4, 8})}, 1), DType::kBF16));
  const FuncId f = finish(b);
  const Function before = m[f];
  EXPECT_TRUE(run(m, f, "move_casts"));
  expect_same_bits(m, before, m[f]);
  EXPECT_EQ(count(m[f], concat_op), 2);
  EXPECT_EQ(casts_of(m[f], {8, 4}) + casts_of(m[f], {4, 8}), count(m[f], cast_op));
  for (const Node& n : m[f].nodes)
    if (n.op == &concat_op) EXPECT_EQ(m[f].type(n.output()).dtype, DType::kBF16);
}

TEST(MoveCasts, LeavesAlone) {
  Module m;
  Builder b(m, "f");
  const Var wide = b.param("wide", {DType::kF32, {8, 6}}), y = b.param("y", {DType::kF32, {8, 6}});
  // To 16 bits before a slice; to f32 behind a concatenation; one that is read in f32, too; and one
  // of values that no arithmetic made.
  b.result("a", slice(cast(wide, DType::kBF16), 1, 0, 3));
  const Var low = b.param("low", {DType::kBF16, {8, 6}});
  b.result("b", cast(concat(std::vector{neg(low), low}, 1), DType::kF32));
  const Var both = concat(std::vector{neg(wide), neg(y)}, 1);
  b.result("c", both);
  b.result("d", cast(both, DType::kBF16));
  b.result("e", cast(concat(std::vector{wide, neg(y)}, 0), DType::kBF16));
  EXPECT_FALSE(run(m, finish(b), "move_casts"));
}

}  // namespace
}  // namespace tegula
