#include "tegula/ir/interpret.h"

#include <gtest/gtest.h>

#include "tegula/ir/reference.h"
#include "tegula/ops/math.h"

namespace tegula {
namespace {

const Function& finish(Module& m, Builder& b) {
  auto f = b.finish_into_module();
  EXPECT_TRUE(f.ok()) << f.error().to_string();
  return m[*f];
}

HostTensor f32(const Shape& shape, std::vector<double> values) {
  return HostTensor({DType::kF32, shape}, values);
}

TEST(Interpret, OracleIsExactWhereNaiveRounds) {
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", {DType::kF32, {2}});
  b.result("y", x * x);
  const Function& f = finish(m, b);
  const HostTensor in[] = {f32({2}, {1 + 0x1p-20, 3})};
  auto exact = interpret(m, f, in);
  auto naive = interpret(m, f, in, Arithmetic::kNaive);
  ASSERT_TRUE(exact.ok() && naive.ok());
  EXPECT_EQ((*exact)[0].type, (Type{DType::kF64, {2}}));
  EXPECT_EQ((*naive)[0].type, (Type{DType::kF32, {2}}));
  EXPECT_EQ((*exact)[0].at(0), 1 + 0x1p-19 + 0x1p-40);
  EXPECT_EQ((*naive)[0].at(0), 1 + 0x1p-19);
  EXPECT_EQ((*naive)[0].at(1), 9);
}

TEST(Interpret, NaiveIntegersStayExact) {
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", {DType::kI64, {1}});
  b.result("y", x + x);
  const Function& f = finish(m, b);
  const HostTensor in[] = {HostTensor({DType::kI64, {1}}, std::vector<double>{0x1p40 + 1})};
  auto y = interpret(m, f, in, Arithmetic::kNaive);
  ASSERT_TRUE(y.ok());
  EXPECT_EQ((*y)[0].at(0), 0x1p41 + 2);
}

TEST(Interpret, ExtentsReachShapesAndAttributes) {
  Module m;
  const Dim n = m.add_symbol("n", 8);
  Builder b(m, "f");
  const Var x = b.param("x", {DType::kF32, {n, 2}});
  b.result("rows", iota(b, {n}, 0, DType::kI64));
  b.result("mean", reduce_mean(x, {0}));
  const Function& f = finish(m, b);
  const HostTensor in[] = {f32({3, 2}, {1, 2, 3, 4, 5, 9})};
  const int64_t extents[] = {3};
  auto y = interpret(m, f, in, Arithmetic::kOracle, extents);
  ASSERT_TRUE(y.ok()) << y.error().to_string();
  EXPECT_EQ((*y)[0].values(), (std::vector<double>{0, 1, 2}));
  EXPECT_EQ((*y)[1].values(), (std::vector<double>{3, 5}));
}

TEST(Interpret, CountsFlopsAndTouchedBytes) {
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", {DType::kF32, {4, 6}});
  const Var w = b.param("w", {DType::kF32, {6, 5}});
  b.result("y", matmul(x, w));
  b.result("z", slice(x, 0, 1, 2));
  const Function& f = finish(m, b);
  const HostTensor in[] = {HostTensor(f.type(0)), HostTensor(f.type(1))};
  std::vector<NodeCount> counts;
  ASSERT_TRUE(interpret(m, f, in, Arithmetic::kCounted, {}, &counts).ok());
  ASSERT_EQ(counts.size(), 2u);
  EXPECT_EQ(counts[0].flops, 2 * 4 * 6 * 5);
  EXPECT_EQ(counts[0].bytes.read, 4 * (4 * 6 + 6 * 5));
  EXPECT_EQ(counts[0].bytes.written, 4 * 4 * 5);
  EXPECT_EQ(counts[1].bytes.read, 4 * 2 * 6);
  EXPECT_EQ(counts[1].flops, 0);
}

TEST(Interpret, SaysWhatIsWrong) {
  Module m;
  const Dim n = m.add_symbol("n", 8);
  Builder b(m, "f");
  const Var x = b.param("x", {DType::kF32, {n}});
  b.result("y", neg(x));
  const Function& f = finish(m, b);
  const HostTensor good[] = {f32({8}, std::vector<double>(8))};
  const HostTensor shape[] = {f32({2}, {1, 2})};
  const HostTensor dtype[] = {HostTensor({DType::kI32, {8}})};
  const int64_t large[] = {9}, two[] = {1, 2};
  EXPECT_TRUE(interpret(m, f, good).ok());
  auto message = [](auto result) { return result.ok() ? "" : result.error().message; };
  EXPECT_EQ(message(interpret(m, f, {})), "f: has 1 parameters, got 0 inputs");
  EXPECT_EQ(message(interpret(m, f, shape)), "f: parameter x is f32[8], got f32[2]");
  EXPECT_EQ(message(interpret(m, f, dtype)), "f: parameter x is f32[8], got i32[8]");
  EXPECT_EQ(message(interpret(m, f, good, Arithmetic::kOracle, large)),
            "extent 9 of n is outside [0, 8]");
  EXPECT_EQ(message(interpret(m, f, good, Arithmetic::kOracle, two)),
            "the module has 1 symbols, got 2 extents");
}

// Applies its region to the two rows of x.
struct RowsRef {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    for (int64_t row = 0; row < 2; ++row) {
      TensorRef x = a.in[0], y = a.out[0];
      for (TensorRef* t : {&x, &y}) {
        t->data = t->as<std::byte>() + row * t->stride[0] * size_bytes(t->dtype);
        t->rank = 1, t->shape[0] = t->shape[1], t->stride[0] = t->stride[1];
      }
      a.run_region(a, 0, std::span(&x, 1), std::span(&y, 1));
    }
  }
};
constinit const OpDef rows_op = {
    .name = "rows",
    .dims = "r n -> r n",
    .types = "T -> T",
    .reference = reference_of<RowsRef>,
};

TEST(Interpret, RegionsRunAndCount) {
  Module m;
  Builder body(m, "body");
  {
    const Var x = body.param("x", {DType::kF32, {4}});
    const Var head = slice(x, 0, 0, 2);  // of every row, only the first half is read
    const Var both[] = {head, head * head};
    body.result("y", concat(both, 0));
  }
  auto region = body.finish_into_module();
  ASSERT_TRUE(region.ok());
  Builder b(m, "f");
  const Var x = b.param("x", {DType::kF32, {2, 4}});
  b.result("y", b.emit_n(rows_op, {}, std::span(&x, 1), {})[0]);
  const Function& f = finish(m, b);
  // The builder gives functions only to ops that say how they use them, as this one does not.
  for (Function& each : m.functions)
    for (Node& n : each.nodes)
      if (n.op == &rows_op) n.regions = {*region};
  const HostTensor in[] = {f32({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8})};
  std::vector<NodeCount> counts;
  for (Arithmetic a : {Arithmetic::kOracle, Arithmetic::kNaive, Arithmetic::kCounted}) {
    auto y = interpret(m, f, in, a, {}, a == Arithmetic::kCounted ? &counts : nullptr);
    ASSERT_TRUE(y.ok()) << y.error().to_string();
    EXPECT_EQ((*y)[0].values(), (std::vector<double>{1, 2, 1, 4, 5, 6, 25, 36}));
  }
  ASSERT_EQ(counts.size(), 1u);
  EXPECT_EQ(counts[0].flops, 4);
  EXPECT_EQ(counts[0].bytes.read, 4 * 4);
  EXPECT_EQ(counts[0].bytes.written, 4 * 8);
}

}  // namespace
}  // namespace tegula
