#include <cmath>
#include <cstring>
#include <random>

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
}

TEST(Algebra, Negation) {
  EXPECT_EQ(left([](Var x) { return neg(neg(x)); }), 0);
  EXPECT_EQ(left([](Var x) { return neg(neg(x)); }, kInts), 0);  // -2^31, too, which wraps
  EXPECT_EQ(left([](Var x) { return neg(neg(x)); }, {DType::kBool, {3}}), 2);
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

// A sum of n equal terms rounds n - 1 times, a product with n once: equal for powers of two, which
// would hide the difference, and not for others.
TEST(Algebra, SumsOfRepeatsKeepTheirBitsForEveryCount) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF64, DType::kI32, DType::kI64})
    for (const int64_t n : {1, 2, 3, 5, 6, 7, 8, 11, 100}) {
      SCOPED_TRACE(cat(dtype_name(dtype), " ", n));
      Module m;
      Builder b(m, "f");
      const Var x = b.param("x", {dtype, {3, 4}});
      b.result("y", reduce_sum(broadcast(reshape(x, {3, 1, 4}), {3, n, 4}), {1}));
      run_checked(m, finish(b), "algebra");
    }
}

// Every value that up to 16 bits hold; of wider types edges and 20,000 drawn at random.
HostTensor values_of(DType dtype) {
  const int64_t size = size_bytes(dtype);
  const int64_t n = dtype == DType::kBool ? 2 : size <= 2 ? int64_t{1} << (8 * size) : 20000;
  HostTensor x({dtype, {n}});
  std::mt19937_64 rng(5);
  const double edges[] = {0,          -0.0,    0.5,    -1.5,     127,       128,  255,
                          256,        448,     65504,  65536,    1e-40,     3e38, 0x1p24 + 1,
                          0x1p31 - 1, -0x1p31, 0x1p53, INFINITY, -INFINITY, NAN};
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t bits = size <= 2 ? static_cast<uint64_t>(i) : rng();
    std::memcpy(x.bytes.data() + i * size, &bits, static_cast<size_t>(size));
    if (size > 2 && is_float(dtype) && i < static_cast<int64_t>(std::size(edges)))
      x.put(i, edges[i]);
    if (size > 2 && !is_float(dtype) && i < 64) {
      const int64_t value = (i % 2 ? -1 : 1) * ((int64_t{1} << (i % (8 * size - 1))) + i % 3 - 1);
      std::memcpy(x.bytes.data() + i * size, &value, static_cast<size_t>(size));
    }
  }
  return x;
}

// Where two casts became one or none, the values of the first type lose nothing by it.
TEST(Algebra, CastsThatAreLeftOutLoseNothing) {
  int n_left_out = 0;
  for (const DType from : kAllDTypes)
    for (const DType by : kAllDTypes)
      for (const DType to : kAllDTypes) {
        if (by == from) continue;
        Module m;
        Builder b(m, "f");
        b.result("y", cast(cast(b.param("x", {from, {values_of(from).numel()}}), by), to));
        const FuncId f = finish(b);
        const Function before = m[f];
        run(m, f, "algebra");
        run(m, f, "dce");
        if (count(m[f], cast_op) == count(before, cast_op)) continue;
        SCOPED_TRACE(cat(dtype_name(from), " ", dtype_name(by), " ", dtype_name(to)));
        ++n_left_out;
        const HostTensor in[] = {values_of(from)};
        const auto x = interpret(m, before, in, Arithmetic::kNaive);
        const auto y = interpret(m, m[f], in, Arithmetic::kNaive);
        ASSERT_TRUE(x.ok() && y.ok());
        for (int64_t i = 0; i < in[0].numel(); ++i) {
          const double p = (*x)[0].at(i), q = (*y)[0].at(i);
          ASSERT_TRUE(p == q ? std::signbit(p) == std::signbit(q) : std::isnan(p) && std::isnan(q))
              << "element " << i << ", " << in[0].at(i) << ": " << p << " and " << q;
        }
      }
  EXPECT_GT(n_left_out, 100);
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
