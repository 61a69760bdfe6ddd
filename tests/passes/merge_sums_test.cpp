// merge_sums: which products that are added become one, and the gradients beside them.
#include <cmath>

#include "tests/passes/passes.h"

namespace tegula {
namespace {

constexpr DType F = DType::kF32;
constexpr const char* kToX = "b s n, n k -> b s k";
constexpr const char* kToW = "b s k, b s n -> n k";

PassOptions fast(const Target& target = *find_target("h200")) {
  PassOptions o;
  o.mode = Mode::kFast, o.target = &target;
  return o;
}

// The way there through q, k and v, with their weights side by side, and back, where parts come in
// the order v, k, q.
struct Net {
  Module m;
  Builder b{m, "f"};
  DType dtype;
  Var x, d[3], w[3], part[3], dw[3], sum;

  // reads_early: a gradient before the sum is made.
  explicit Net(DType dtype = F, int64_t width = 8, bool reads_early = false,
               bool is_side_by_side = true)
      : dtype(dtype) {
    x = b.param("x", {dtype, {2, 6, 8}});
    const int64_t sizes[] = {width, 4, 4};
    for (int i = 0; i < 3; ++i) w[i] = b.param(cat("w", i), {dtype, {sizes[i], 8}});
    if (is_side_by_side) b.result("y", dot("b s k, n k -> b s n", x, concat(w, 0)));
    // Parameters that come late have other numbers in the new function.
    for (int i = 0; i < 3; ++i) d[i] = b.param(cat("d", i), {dtype, {2, 6, sizes[i]}});
    b.set_phase(Phase::kBackward);
    for (int i = 2; i >= 0; --i) {
      part[i] = dot(kToX, d[i], w[i]);
      if (dtype != F) part[i] = cast(part[i], F);
      dw[i] = dtype == F ? dot(kToW, x, d[i]) : dot(kToW, x, d[i], F);
      if (reads_early && i == 2) b.result("early", neg(dw[i]));
      sum = sum.valid() ? sum + part[i] : part[i];
    }
    b.result("dx", sum);
  }
  FuncId end() {
    for (int i = 0; i < 3; ++i) b.result(cat("dw", i), dw[i]);
    return finish(b);
  }
};

void expect_near(const Module& m, const Function& before, const Function& after, double bound) {
  const std::vector<HostTensor> in = random_inputs(m, before, 1);
  const auto a = interpret(m, before, in, Arithmetic::kNaive, some_extents(m));
  const auto b = interpret(m, after, in, Arithmetic::kNaive, some_extents(m));
  ASSERT_TRUE(a.ok() && b.ok());
  for (size_t r = 0; r < a->size(); ++r) {
    ASSERT_EQ((*a)[r].type.shape, (*b)[r].type.shape);
    for (int64_t i = 0; i < (*a)[r].numel(); ++i)
      ASSERT_NEAR((*a)[r].at(i), (*b)[r].at(i), bound) << "result " << r << ", " << i;
  }
}

TEST(MergeSums, OneProductEachWay) {
  for (const DType t : {F, DType::kBF16}) {
    Net n(t);
    const FuncId f = n.end();
    const Function before = n.m[f];
    EXPECT_TRUE(run(n.m, f, "merge_sums", fast()));
    EXPECT_EQ(count(n.m[f], dot_op), 3) << "one there, two back";
    EXPECT_EQ(count(n.m[f], concat_op), 2) << "of the factors and, as before, of the weights";
    EXPECT_EQ(count(n.m[f], slice_op), 3);
    EXPECT_EQ(count(n.m[f], add_op), 0);
    expect_near(n.m, before, n.m[f], t == F ? 1e-4 : 0.5);
    EXPECT_FALSE(run(n.m, f, "merge_sums", fast())) << "twice is once";
  }
}

// Behind a sum that became one product, values have other numbers.
TEST(MergeSums, OneAfterTheOther) {
  Module m;
  Builder b(m, "f");
  for (const char* name : {"first", "second"}) {
    b.set_phase(Phase::kForward);
    const Var x = b.param(cat("x ", name), {F, {2, 6, 8}});
    const Var w[] = {b.param(cat("w0 ", name), {F, {4, 8}}),
                     b.param(cat("w1 ", name), {F, {4, 8}})};
    const Var d[] = {b.param(cat("d0 ", name), {F, {2, 6, 4}}),
                     b.param(cat("d1 ", name), {F, {2, 6, 4}})};
    b.result(cat("y ", name), dot("b s k, n k -> b s n", x, concat(w, 0)));
    b.set_phase(Phase::kBackward);
    for (int i = 0; i < 2; ++i) b.result(cat("dw", i, name), dot(kToW, x, d[i]));
    b.result(cat("dx ", name), dot(kToX, d[1], w[1]) + dot(kToX, d[0], w[0]));
  }
  const FuncId f = finish(b);
  const Function before = m[f];
  EXPECT_TRUE(run(m, f, "merge_sums", fast()));
  EXPECT_EQ(count(m[f], dot_op), 6);
  EXPECT_EQ(count(m[f], concat_op), 4);
  expect_near(m, before, m[f], 1e-4);
}

TEST(MergeSums, LeavesAlone) {
  const auto n_dots = [](const PassOptions& o, int64_t width = 8, bool is_side_by_side = true) {
    Net n(F, width, false, is_side_by_side);
    const FuncId f = n.end();
    run(n.m, f, "merge_sums", o);
    return count(n.m[f], dot_op);
  };
  EXPECT_EQ(n_dots(fast()), 3);
  EXPECT_EQ(n_dots(fast(), 9), 7) << "17 columns of factors for the 16 that a sum spares";
  EXPECT_EQ(n_dots(fast(), 8, false), 6) << "weights would have to be put side by side";
  EXPECT_EQ(n_dots(fast(Target::one_thread())), 7) << "a CPU";
  PassOptions exact = fast();
  exact.mode = Mode::kExact;
  EXPECT_EQ(n_dots(exact), 7);
}

TEST(MergeSums, WhatIsReadApartOrEarlyStaysByItself) {
  Net apart;
  apart.b.result("apart", neg(apart.part[1]));
  const FuncId f = apart.end();
  const Function before = apart.m[f];
  EXPECT_FALSE(run(apart.m, f, "merge_sums", fast()));

  Net early(F, 8, true);
  const FuncId g = early.end();
  const Function was = early.m[g];
  EXPECT_TRUE(run(early.m, g, "merge_sums", fast()));
  EXPECT_EQ(count(early.m[g], dot_op), 5) << "the sum alone";
  expect_near(early.m, was, early.m[g], 1e-4);
}

}  // namespace
}  // namespace tegula
