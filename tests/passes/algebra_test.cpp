#include <cmath>

#include "tests/passes/passes.h"

namespace tegula {
namespace {

Type f32(Shape s) { return {DType::kF32, s}; }

// Applies the pass to y(x) and returns what is left of it, in working nodes.
template <class F>
int left(F&& y, Type type = f32({3, 4})) {
  Module m;
  Builder b(m, "f");
  b.result("y", y(b.param("x", type)));
  const FuncId f = finish(b);
  run_checked(m, f, "algebra");
  return n_working(m[f]);
}

const Type kInts = {DType::kI32, {3, 4}};

TEST(Algebra, NeutralElements) {
  EXPECT_EQ(left([](Var x) { return x * 1.0; }), 0);
  EXPECT_EQ(left([](Var x) { return 1.0 * x; }), 0);
  EXPECT_EQ(left([](Var x) { return x / 1.0; }), 0);
  EXPECT_EQ(left([](Var x) { return x - 0.0; }), 0);
  EXPECT_EQ(left([](Var x) { return x + -0.0; }), 0);
  EXPECT_EQ(left([](Var x) { return exp(x) + 0.0; }), 1);
  EXPECT_EQ(left([](Var x) { return x + 0.0; }, kInts), 0);
  EXPECT_EQ(left([](Var x) { return x * 0.0; }, kInts), 0);
  EXPECT_EQ(left([](Var x) { return x - x; }, kInts), 0);
}

TEST(Algebra, NotWhereAFloatDiffers) {
  EXPECT_EQ(left([](Var x) { return x + 0.0; }), 1);   // -0
  EXPECT_EQ(left([](Var x) { return x - -0.0; }), 1);  // -0
  EXPECT_EQ(left([](Var x) { return x * 0.0; }), 1);   // inf, NaN, negative x
  EXPECT_EQ(left([](Var x) { return x - x; }), 1);     // inf
  EXPECT_EQ(left([](Var x) { return (x * 0.1) * 0.3; }), 2);
  EXPECT_EQ(left([](Var x) { return x / 3.0; }), 1);
  EXPECT_EQ(left([](Var x) { return pow(x, 2.0); }), 1);
  EXPECT_EQ(left([](Var x) { return neg(neg(x)); }, kInts), 2);  // -2^31 saturates
}

TEST(Algebra, Negation) {
  EXPECT_EQ(left([](Var x) { return neg(neg(x)); }), 0);
  EXPECT_EQ(left([](Var x) { return exp(x) + neg(x); }), 2);
  EXPECT_EQ(left([](Var x) { return exp(x) - neg(x); }), 2);
}

TEST(Algebra, DivisionByAPowerOfTwo) {
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", f32({5}));
  b.result("y", x / 8.0);
  b.result("z", x / 0x1p100);
  const FuncId f = finish(b);
  EXPECT_TRUE(run_checked(m, f, "algebra"));
  EXPECT_EQ(count(m[f], mul_op), 1);
  EXPECT_EQ(count(m[f], div_op), 1);
}

TEST(Algebra, SelectsAndLogic) {
  const Type bools = {DType::kBool, {5}};
  EXPECT_EQ(left([](Var x) { return select(gt(x, 0.0), x, x); }), 0);
  EXPECT_EQ(left([](Var x) {
              return select(fill(x.builder(), 1, {DType::kBool, x.shape()}), x, exp(x));
            }),
            0);
  EXPECT_EQ(left([](Var x) { return select(logical_not(gt(x, 0.0)), x, exp(x)); }), 3);
  EXPECT_EQ(left([](Var x) { return logical_not(logical_not(x)); }, bools), 0);
  EXPECT_EQ(left([](Var x) { return logical_and(x, 1.0); }, bools), 0);
  EXPECT_EQ(left([](Var x) { return logical_and(x, 0.0); }, bools), 0);
  EXPECT_EQ(left([](Var x) { return logical_or(x, 1.0); }, bools), 0);
  EXPECT_EQ(left([](Var x) { return logical_or(x, x); }, bools), 0);
  EXPECT_EQ(left([](Var x) { return max(x, x); }), 0);
}

TEST(Algebra, Casts) {
  auto there = [](DType t) { return [t](Var x) { return cast(cast(x, t), x.dtype()); }; };
  EXPECT_EQ(left(there(DType::kF64)), 0);
  EXPECT_EQ(left(there(DType::kBF16)), 2);
  EXPECT_EQ(left(there(DType::kI64), kInts), 0);
  EXPECT_EQ(left(there(DType::kF32), kInts), 2);
  EXPECT_EQ(
      left([](Var x) { return cast(cast(x, DType::kF32), DType::kF16); }, {DType::kBF16, {7}}), 1);
}

TEST(Algebra, ReductionsOfRepeats) {
  auto repeat = [](Var x) { return broadcast(reshape(x, {3, 1, 4}), {3, 5, 4}); };
  EXPECT_EQ(left([&](Var x) { return reduce_max(repeat(x), {1}); }), 0);
  EXPECT_EQ(left([&](Var x) { return reduce_sum(repeat(x), {1}); }), 1);  // rounds n times
  EXPECT_EQ(left([&](Var x) { return reduce_sum(repeat(x), {1}); }, kInts), 1);
  EXPECT_EQ(left([&](Var x) { return reduce_max(repeat(x), {0, 1}); }), 1);
  EXPECT_EQ(left([](Var x) { return reduce_max(reshape(x, {3, 1, 4}), {1}); }), 0);
  EXPECT_EQ(left([](Var x) { return reduce_max(broadcast(x, {0, 3, 4}), {0}); }), 1);
}

TEST(Algebra, ElementwiseOfBroadcasts) {
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", f32({3, 1})), y = b.param("y", f32({3, 1}));
  const Shape to = {3, 4};
  b.result("z", exp(broadcast(x, to) * 2.0) + broadcast(y, to));
  b.result("apart", broadcast(x, to) * broadcast(b.param("r", f32({4})), to));
  const FuncId f = finish(b);
  EXPECT_TRUE(run_checked(m, f, "algebra"));
  EXPECT_EQ(m[f].type(only(m[f], exp_op)->output()).shape, (Shape{3, 1}));
  EXPECT_EQ(m[f].type(only(m[f], add_op)->output()).shape, (Shape{3, 1}));
}

TEST(Algebra, TheGradientOfSlicesIsOneConcatenation) {
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", f32({2, 3})), y = b.param("y", f32({2, 4}));
  const Var z = b.param("z", f32({2, 5}));
  const Var p = pad(exp(x), 1, 0, 9, 0, 0.0), q = pad(y, 1, 3, 5, 0, 0.0);
  b.result("y", (p + pad(relu(z), 1, 7, 0, 0, 0.0)) + q);
  const FuncId f = finish(b);
  EXPECT_TRUE(run_checked(m, f, "algebra"));
  EXPECT_EQ(count(m[f], pad_op), 0);
  EXPECT_EQ(only(m[f], concat_op)->inputs.size(), 3u);
  EXPECT_EQ(count(m[f], add_op), 1);  // y may hold -0
}

TEST(Algebra, ConcatenationKeepsTheSignOfZero) {
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", f32({2}));
  const Var minus = neg(x * 0.0);
  b.result("y", pad(minus, 0, 0, 2, 0, 0.0) + pad(minus, 0, 2, 0, 0, 0.0));
  const FuncId f = finish(b);
  EXPECT_TRUE(run(m, f, "algebra"));
  run(m, f, "dce");
  EXPECT_EQ(count(m[f], pad_op), 0);
  const HostTensor in[] = {HostTensor(f32({2}), std::vector<double>{1, 2})};
  auto y = interpret(m, m[f], in, Arithmetic::kNaive);
  ASSERT_TRUE(y.ok());
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(std::signbit((*y)[0].at(i)));
}

TEST(Algebra, OtherSumsOfPadsStay) {
  auto pads = [](int64_t lo, int64_t hi, int64_t interior, double value) {
    return left(
        [=](Var x) { return pad(x, 1, 0, 4, 0, 0.0) + pad(x, 1, lo, hi, interior, value); });
  };
  EXPECT_LE(pads(4, 0, 0, 0.0), 4);
  EXPECT_EQ(pads(3, 1, 0, 0.0), 3);  // they overlap
  EXPECT_EQ(pads(4, 0, 0, 1.0), 3);  // not zero
  EXPECT_EQ(
      left([](Var x) { return pad(x, 1, 0, 3, 0, 0.0) + pad(slice(x, 1, 0, 1), 1, 0, 6, 2, 0.0); }),
      3);
  EXPECT_EQ(left([](Var x) { return pad(x, 1, 0, 5, 0, 0.0) + pad(x, 1, 5, 0, 0, 0.0); }), 3);
}

}  // namespace
}  // namespace tegula
