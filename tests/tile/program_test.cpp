// Builder, text, verifier, schedules and FLOPs of tile programs.
#include "tegula/tile/program.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tegula/tile/builder.h"
#include "tegula/tile/schedule.h"

namespace tegula::tile {
namespace {

Program softmax() {
  Builder b(2, 1);
  const Reg x = b.load(b.input(DType::kF32));
  const Reg e = exp(x - b.reduce(Op::kReduceMax, x));
  b.store(b.output(DType::kF32), e / b.reduce(Op::kReduceSum, e));
  return b.finish().value();
}

Program layer_norm() {
  Builder b(3, 1);
  const Reg x = b.load(b.input(DType::kF32));
  const Reg w = b.load(b.input(DType::kF32));
  const Reg mean = b.reduce(Op::kReduceSum, x) * (1.0 / 768);
  const Reg d = x - mean;
  const Reg rstd = rsqrt(b.reduce(Op::kReduceSum, d * d) * (1.0 / 768) + 1e-5);
  b.store(b.output(DType::kF32), d * rstd * w);
  b.store(b.output(DType::kF32, Extent::kRow), rstd);
  return b.finish().value();
}

std::string error_of(std::string_view text) {
  const Result<Program> p = parse(text);
  return p.ok() ? "" : p.error().message;
}

TEST(TileText, SoftmaxReadsAsWritten) {
  EXPECT_EQ(to_text(softmax()),
            "program rank=2 inner=1\n"
            "in0 f32\n"
            "out0 f32\n"
            "%0 = load f32 in0\n"
            "%1 = reduce_max f32 %0\n"
            "%2 = sub f32 %0 %1\n"
            "%3 = exp f32 %2\n"
            "%4 = reduce_sum f32 %3\n"
            "%5 = div f32 %3 %4\n"
            "store out0 %5\n");
}

TEST(TileText, RoundTrip) {
  Builder b(3, 2);
  const Reg seed = b.load(b.input(DType::kI64, Extent::kUniform));
  const Reg x = b.load(b.input(DType::kBF16));
  const Reg row = b.load(b.input(DType::kBF16, Extent::kRow));
  const Reg u = b.random_uniform(seed, 7);
  const Reg keep = b.binary(Op::kLt, u, b.constant(0.1, DType::kF32));
  const Reg at = b.iota(2, DType::kI32);
  const Reg far = b.binary(Op::kGt, at, b.constant_int(-3, DType::kI32));
  const Reg both = b.binary(Op::kLogicalAnd, keep, far);
  const Reg y = b.select(both, b.fma(x, row, x), b.constant(-HUGE_VAL, DType::kBF16));
  b.store(b.output(DType::kF64), b.cast(y, DType::kF64));
  b.store(b.output(DType::kF32, Extent::kRow), b.reduce(Op::kReduceSum, y, DType::kF32));
  b.store(b.output(DType::kI64), b.index());
  const Program p = b.finish().value();
  const std::string text = to_text(p);
  const Result<Program> again = parse(text);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(to_text(*again), text);
  EXPECT_TRUE(*again == p);
  EXPECT_FALSE(softmax() == p);
}

TEST(TileText, BadTextNamesTheLine) {
  EXPECT_NE(error_of("program rank=2 inner=1\nin0 f33\n").find("line 2: unknown dtype f33"),
            std::string::npos);
  EXPECT_NE(error_of("program rank=x inner=1\n").find("line 1"), std::string::npos);
  EXPECT_NE(error_of("program rank=1 inner=0\nin0 f32\nout0 f32\n%1 = load f32 in0\n")
                .find("value %1 where %0 is next"),
            std::string::npos);
  EXPECT_NE(error_of("program rank=1 inner=0\nhello\n").find("got `hello`"), std::string::npos);
  EXPECT_NE(error_of("program rank=1 inner=0\nin0 f32\n%0 = frob f32 %0\n").find("unknown op frob"),
            std::string::npos);
  EXPECT_NE(error_of("program rank=1 inner=0\nin0 f32\n%0 = constant f32 12x\n").find("immediate"),
            std::string::npos);
}

// One line of the body is wrong; the rest is fine.
std::string verify_error(const std::string& body, int inner = 1) {
  return error_of(cat("program rank=2 inner=", inner,
                      "\nin0 f32\nin1 i64 uniform\nin2 i32\nout0 f32\n%0 = load f32 in0\n", body));
}

TEST(TileVerify, NamesWhatIsWrong) {
  EXPECT_EQ(verify_error("store out0 %0\n"), "");
  const std::pair<const char*, const char*> cases[] = {
      {"%1 = add f32 %0 %2\nstore out0 %1\n", "source %2 is not defined before it"},
      {"%1 = add f32 %0\nstore out0 %1\n", "takes 2 sources, got 1"},
      {"%1 = exp f32 %0 %0\nstore out0 %1\n", "takes 1 sources, got 2"},
      {"store out0 %0\nstore out0 %0\n", "out0 is stored twice"},
      {"%1 = exp f32 %0\n", "out0 is never stored"},
      {"%1 = load f32 in7\nstore out0 %1\n", "there is no in7"},
      {"%1 = load f32 in2\nstore out0 %1\n", "has dtype f32, its operand i32"},
      {"%1 = load i32 in2\nstore out0 %1\n", "the value is i32, the output f32"},
      {"%1 = load i32 in2\n%2 = add f32 %0 %1\nstore out0 %2\n", "source 1 is i32"},
      {"%1 = load i32 in2\n%2 = exp i32 %1\nstore out0 %0\n", "is for floats, not i32"},
      {"%1 = load i32 in2\n%2 = lt bool %0 %1\nstore out0 %0\n", "compares f32 with i32"},
      {"%1 = lt f32 %0 %0\nstore out0 %1\n", "gives bool"},
      {"%1 = logical_not bool %0\nstore out0 %0\n", "takes bool, not f32"},
      {"%1 = select f32 %0 %0 %0\nstore out0 %1\n", "the condition is f32, not bool"},
      {"%1 = iota i64 dim=2\nstore out0 %0\n", "dim 2 is not in [0, rank = 2)"},
      {"%1 = iota f32 dim=1\nstore out0 %0\n", "gives an integer: cast after"},
      {"%1 = random_uniform f32 stream=1 %0\nstore out0 %1\n", "the seed is an i64"},
      {"%1 = index i64\n%2 = random_uniform f32 stream=1 %1\nstore out0 %2\n", "seed is uniform"},
      {"store out0 %0\n%2 = load i32 in2\n", "a load after a store"},
  };
  for (const auto& [body, message] : cases)
    EXPECT_NE(verify_error(body).find(message), std::string::npos)
        << body << "gave: " << verify_error(body);
  EXPECT_NE(verify_error("%1 = reduce_sum f32 %0\nstore out0 %1\n", 0).find("needs inner dims"),
            std::string::npos);
  EXPECT_NE(error_of("program rank=9 inner=1\nin0 f32\nout0 f32\n").find("rank 9"),
            std::string::npos);
  EXPECT_NE(error_of("program rank=1 inner=0\nin0 f32 row\nout0 f32\n").find("elementwise"),
            std::string::npos);
  EXPECT_NE(error_of("program rank=1 inner=1\nin0 f32\nout0 f32 row\n%0 = load f32 in0\n"
                     "store out0 %0\n")
                .find("a row output cannot hold a value per element"),
            std::string::npos);
  EXPECT_NE(error_of("program rank=1 inner=1\nin0 f32 row\nout0 f32 row\n%0 = load f32 in0\n"
                     "store out0 %0\n")
                .find("no operand has the extent"),
            std::string::npos);
}

TEST(TileColumns, TextAndWhatIsRefused) {
  Builder b(2, 1);
  const Reg x = b.load(b.input(DType::kF32));
  b.store(b.output(DType::kF32, Extent::kColumn), x * exp(x));
  const Program p = b.finish().value();
  EXPECT_TRUE(has_columns(p));
  EXPECT_FALSE(has_columns(softmax()));
  const std::string text =
      "program rank=2 inner=1\n"
      "in0 f32\n"
      "out0 f32 column\n"
      "%0 = load f32 in0\n"
      "%1 = exp f32 %0\n"
      "%2 = mul f32 %0 %1\n"
      "store out0 %2\n";
  EXPECT_EQ(to_text(p), text);
  const Result<Program> again = parse(text);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_TRUE(*again == p);
  const int64_t shape[] = {5, 7};
  // per element: exp 1, mul 1, sum 1
  EXPECT_EQ(flops(p, shape), 5 * 7 * 3);

  const auto refused = [](int inner, const char* in, const char* out) {
    const std::string_view dtype = std::string_view(in).substr(0, std::string_view(in).find(' '));
    return error_of(cat("program rank=2 inner=", inner, "\nin0 ", in, "\nin1 f32\nout0 ", out,
                        "\n%0 = load ", dtype, " in0\nstore out0 %0\n"));
  };
  EXPECT_EQ(refused(1, "f32", "f32 column"), "");
  const std::tuple<int, const char*, const char*, const char*> cases[] = {
      {0, "f32", "f32 column", "a column output needs rows to sum"},
      {2, "f32", "f32 column", "a column output needs rows to sum"},
      {1, "bf16", "bf16 column", "a column output is f32, not bf16: cast before and after"},
      {1, "f32 column", "f32", "an input is full, row or uniform, never column"},
  };
  for (const auto& [inner, in, out, why] : cases)
    EXPECT_NE(refused(inner, in, out).find(why), std::string::npos) << refused(inner, in, out);
}

TEST(TileBuilder, KeepsTheFirstError) {
  Builder b(1);
  const Reg x = b.load(b.input(DType::kF32));
  const Reg bad = x + b.load(b.input(DType::kBF16));
  EXPECT_FALSE(bad.valid());
  b.store(b.output(DType::kF32), exp(bad) * 2.0);
  const Result<Program> p = b.finish();
  ASSERT_FALSE(p.ok());
  EXPECT_EQ(p.error().code, Code::kInvalidArgument);
  EXPECT_NE(p.error().message.find("add: f32 and bf16 differ"), std::string::npos);
  Builder other(1);
  other.store(other.output(DType::kF32), x);
  EXPECT_FALSE(other.finish().ok());
}

TEST(TileBuilder, DropsDeadCodeAndStoresLast) {
  Builder b(1);
  const int in = b.input(DType::kF32), out = b.output(DType::kF32), second = b.output(DType::kF32);
  const Reg x = b.load(in);
  exp(x);
  b.store(out, x * 2.0);
  b.store(second, b.load(in) + 2.0);
  const Program p = b.finish().value();
  ASSERT_EQ(p.code.size(), 6u);  // load, 2.0, mul, add, two stores
  EXPECT_EQ(p.code[4].op, Op::kStore);
  EXPECT_EQ(p.code[5].op, Op::kStore);
}

TEST(TileSchedule, PhasesFollowReductions) {
  const Program s = softmax();
  ASSERT_EQ(s.resident->phases.size(), 3u);
  EXPECT_EQ(s.resident->long_bytes, 4);  // exp(x - max) is kept,
  EXPECT_EQ(s.streamed->long_bytes, 0);  // or made twice
  EXPECT_EQ(s.streamed->phases[2].body.size(), s.streamed->phases[1].body.size() + 1);
  const Program n = layer_norm();
  ASSERT_EQ(n.resident->phases.size(), 3u);
  EXPECT_EQ(n.resident->long_bytes, 4);
  EXPECT_EQ(n.resident->n_reductions, 2);
}

TEST(TileSchedule, WhatIsOnlyStoredIsMadeLast) {
  Builder b(2, 1);
  const Reg x = b.load(b.input(DType::kF32));
  const Reg sum = b.reduce(Op::kReduceSum, x);
  const Reg y = exp(x);  // before the second pass, but needed in it only
  b.store(b.output(DType::kF32), y * sum);
  const Program p = b.finish().value();
  EXPECT_EQ(p.resident->long_bytes, 0);
  EXPECT_EQ(p.resident->phases.size(), 2u);
}

TEST(TileSchedule, ARowOutputAloneNeedsOnePass) {
  Builder b(2, 1);
  const Reg x = b.load(b.input(DType::kF32));
  b.store(b.output(DType::kF32), exp(x));
  b.store(b.output(DType::kF32, Extent::kRow), b.reduce(Op::kReduceSum, x));
  const Program p = b.finish().value();
  ASSERT_EQ(p.resident->phases.size(), 2u);
  EXPECT_TRUE(p.resident->phases[1].body.empty());
  EXPECT_EQ(p.resident->long_bytes, 0);
}

TEST(TileSchedule, RegistersAreReused) {
  Builder b(1);
  Reg x = b.load(b.input(DType::kF32));
  for (int i = 0; i < 40; ++i) x = exp(x) * 2.0;
  b.store(b.output(DType::kF32), x);
  const Program p = b.finish().value();
  EXPECT_EQ(p.resident->tile_bytes, 4);
}

TEST(TileFlops, CountsByExtent) {
  const int64_t shape[] = {5, 7};
  // per element: max 1, sub 1, exp 1, sum 1, div 1
  EXPECT_EQ(flops(softmax(), shape), 5 * 7 * 5);
  const int64_t shape3[] = {2, 3, 768};
  // per element: sum, sub, mul, sum, mul, mul; per row: mul, mul, add, rsqrt (2)
  EXPECT_EQ(flops(layer_norm(), shape3), 6 * (768 * 6 + 5));
  const int64_t none[] = {2, 0, 768};
  EXPECT_EQ(flops(layer_norm(), none), 0);
}

}  // namespace
}  // namespace tegula::tile
