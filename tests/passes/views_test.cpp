#include "tests/passes/passes.h"

namespace tegula {
namespace {

Type f32(Shape s) { return {DType::kF32, s}; }

// How many views are left of y(x).
template <class F>
int left(F&& y, Shape shape = {2, 3, 4}) {
  Module m;
  Builder b(m, "f");
  b.result("y", y(b.param("x", f32(shape))));
  const FuncId f = finish(b);
  run_checked(m, f, "views");
  return static_cast<int>(m[f].nodes.size());
}

TEST(Views, ChainsBecomeOne) {
  EXPECT_EQ(left([](Var x) { return permute(permute(x, {2, 0, 1}), {1, 0, 2}); }), 1);
  EXPECT_EQ(left([](Var x) { return permute(permute(x, {2, 0, 1}), {1, 2, 0}); }), 0);
  EXPECT_EQ(left([](Var x) { return reshape(reshape(x, {6, 4}), {24}); }), 1);
  EXPECT_EQ(left([](Var x) { return reshape(reshape(x, {6, 4}), {2, 3, 4}); }), 0);
  EXPECT_EQ(left([](Var x) { return broadcast(broadcast(x, {5, 2, 3, 4}), {6, 5, 2, 3, 4}); }), 1);
  EXPECT_EQ(left([](Var x) { return slice(slice(x, 2, 1, 3), 2, 2, 1); }), 1);
  EXPECT_EQ(left([](Var x) { return slice(slice(x, 2, 3, 4, -1), 2, 0, 2, 2); }), 1);
  EXPECT_EQ(left([](Var x) { return slice(x, 2, 0, 4); }), 0);
}

TEST(Views, OthersStay) {
  EXPECT_EQ(left([](Var x) { return slice(slice(x, 2, 1, 3), 1, 1, 2); }), 2);
  EXPECT_EQ(left([](Var x) { return reshape(permute(x, {1, 0, 2}), {6, 4}); }), 2);
}

TEST(Views, DimsOfExtentOne) {
  EXPECT_EQ(left([](Var x) { return broadcast(reshape(x, {1, 1, 24}), {2, 3, 24}); }, {24}), 1);
  EXPECT_EQ(left([](Var x) { return broadcast(reshape(x, {24, 1}), {24, 3}); }, {24}), 2);
  Module m;
  Builder b(m, "f");
  b.result("y", permute(b.param("x", f32({2, 1, 4})), {1, 0, 2}));
  const FuncId f = finish(b);
  EXPECT_TRUE(run_checked(m, f, "views"));
  EXPECT_EQ(m[f].nodes[0].op, &reshape_op);
}

TEST(Views, ASliceOfAConcatenationIsItsPiece) {
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", f32({2, 3})), y = b.param("y", f32({2, 4}));
  const Var parts[] = {x, y};
  const Var c = concat(parts, 1);
  b.result("y", slice(c, 1, 3, 4));
  b.result("mixed", slice(c, 1, 2, 4));
  const FuncId f = finish(b);
  EXPECT_TRUE(run_checked(m, f, "views"));
  EXPECT_EQ(m[f].results[0].value, m[f].params[1].value);
  EXPECT_EQ(count(m[f], slice_op), 1);
}

TEST(Views, DotReadsAndWritesAnyOrder) {
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", f32({2, 4, 3})), w = b.param("w", f32({5, 4}));
  const Var y = dot("b s k, k n -> b s n", permute(x, {0, 2, 1}), permute(w, {1, 0}));
  b.result("y", permute(y, {2, 0, 1}));
  const FuncId f = finish(b);
  EXPECT_TRUE(run_checked(m, f, "views"));
  ASSERT_EQ(m[f].nodes.size(), 1u);
  EXPECT_EQ(m[f].nodes[0].attrs.str("dims"), "b k s, n k -> n b s");
}

TEST(Views, TheOrderOfASumStays) {
  // The contracted factors run in a's order: permuting them would add in another order.
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", f32({2, 3, 4})), y = b.param("y", f32({2, 3, 5}));
  b.result("y", dot("j i m, i j n -> m n", permute(x, {1, 0, 2}), y));
  const FuncId f = finish(b);
  EXPECT_FALSE(run_checked(m, f, "views"));
}

TEST(Views, ADotWithOtherReadersIsNotPermuted) {
  Module m;
  Builder b(m, "f");
  const Var y = matmul(b.param("x", f32({2, 3})), b.param("w", f32({3, 4})));
  b.result("y", y);
  b.result("t", permute(y, {1, 0}));
  const FuncId f = finish(b);
  EXPECT_FALSE(run_checked(m, f, "views"));
}

TEST(Views, BarriersAreNoViews) {
  Module m;
  Builder b(m, "f");
  const Var xs[] = {permute(b.param("x", f32({2, 3})), {1, 0})};
  b.result("y", permute(barrier(xs, {})[0], {1, 0}));
  const FuncId f = finish(b);
  EXPECT_FALSE(run_checked(m, f, "views"));
}

}  // namespace
}  // namespace tegula
