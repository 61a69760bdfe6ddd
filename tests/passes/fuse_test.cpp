#include "tegula/ops/autodiff.h"
#include "tegula/passes/lower_tile.h"
#include "tests/common/tile_reference.h"
#include "tests/passes/passes.h"

namespace tegula {
namespace {

Type f32(Shape s) { return {DType::kF32, s}; }

int n_fused(const Function& f) { return count(f, fused_op); }

// Fusing must leave bits alone and every fused node must lower to a program of as many FLOPs.
void fuse(Module& m, FuncId f, std::string_view pass = "fuse") {
  EXPECT_TRUE(run_checked(m, f, pass));
  EXPECT_FALSE(run(m, f, "wrap"));
  for (const Node& n : m[f].nodes) {
    EXPECT_FALSE(n.op->is_elementwise) << n.op->name;
    if (n.op != &fused_op) continue;
    const auto in = m[f].input_types(n), out = m[f].output_types(n);
    const OpCall call{n.op, &n.attrs, in, out, &m, n.regions};
    auto inferred = infer(call);
    ASSERT_TRUE(inferred.ok()) << inferred.error().to_string();
    EXPECT_EQ(*inferred, out);
    auto lowered = lower_tile(m, n.regions[0], n.attrs);
    ASSERT_TRUE(lowered.ok()) << lowered.error().to_string();
    std::vector<int64_t> space;
    for (const Dim& d : n.attrs.dims("shape")) space.push_back(d.bound());
    EXPECT_EQ(tile::flops(*lowered->program, space), flops_of(call));
  }
}

Var soft_max(Var x) {
  const Var e = exp(x - broadcast(reduce_max(x, {-1}, true), x.shape()));
  return e / broadcast(reduce_sum(e, {-1}, true), x.shape());
}

Var layer_normal(Var x, Var gamma, Var beta) {
  const Var d = x - reduce_mean(x, {-1}, true);
  return d * rsqrt(reduce_mean(d * d, {-1}, true) + 1e-5) * gamma + beta;
}

TEST(Fuse, AChainIsOneNode) {
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", f32({2, 3, 4})), y = b.param("y", f32({2, 3, 4}));
  b.result("z", tanh(x * y + 1.0) * 0.5);
  const FuncId f = finish(b);
  fuse(m, f);
  EXPECT_EQ(m[f].nodes.size(), 1u);
  EXPECT_EQ(only(m[f], fused_op)->inputs.size(), 2u);
}

TEST(Fuse, WrapGivesEachItsOwn) {
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", f32({2, 3})), y = b.param("y", f32({2, 3}));
  b.result("z", reduce_sum(tanh(x * y + 1.0), {1}));
  const FuncId f = finish(b);
  fuse(m, f, "wrap");
  EXPECT_EQ(n_fused(m[f]), 4);
}

TEST(Fuse, SoftmaxIsOneNode) {
  Module m;
  Builder b(m, "f");
  b.result("y", soft_max(b.param("x", f32({2, 3, 5})) * 0.125));
  const FuncId f = finish(b);
  fuse(m, f);
  EXPECT_EQ(m[f].nodes.size(), 1u);
}

TEST(Fuse, LayerNormIsOneNodeWithSmallOperands) {
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", f32({2, 3, 5}));
  b.result("y", layer_normal(x, b.weight("g", f32({5})), b.weight("b", f32({5}))));
  const FuncId f = finish(b);
  fuse(m, f);
  ASSERT_EQ(m[f].nodes.size(), 1u);
  const Node& n = m[f].nodes[0];
  const auto in = m[f].input_types(n), out = m[f].output_types(n);
  // x and y once each, gamma and beta of five elements each.
  const Bytes bytes = bytes_of({n.op, &n.attrs, in, out, &m, n.regions});
  EXPECT_EQ(bytes.read, 4 * (30 + 5 + 5));
  EXPECT_EQ(bytes.written, 4 * 30);
}

TEST(Fuse, AValueReadOutsideIsAResultToo) {
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", f32({4, 4})), w = b.param("w", f32({4, 4}));
  const Var h = exp(x);
  b.result("a", matmul(h, w));
  b.result("b", h * 2.0);
  const FuncId f = finish(b);
  fuse(m, f);
  EXPECT_EQ(n_fused(m[f]), 1);
  EXPECT_EQ(only(m[f], fused_op)->n_outputs, 2u);
}

TEST(Fuse, NotAcrossAnOtherOp) {
  // exp and mul may not merge: mul needs the product that needs exp.
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", f32({4, 4})), w = b.param("w", f32({4, 4}));
  const Var h = exp(x);
  b.result("y", h * matmul(h, w));
  const FuncId f = finish(b);
  fuse(m, f);
  EXPECT_EQ(n_fused(m[f]), 2);
}

TEST(Fuse, NotAcrossAGroup) {
  // The same through a column sum, which is no row and keeps them apart.
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", f32({4, 4}));
  const Var h = exp(x);
  const Var s = tanh(reduce_sum(h, {0}));
  b.result("y", h * s);
  const FuncId f = finish(b);
  fuse(m, f);
  EXPECT_EQ(n_fused(m[f]), 3);
  EXPECT_EQ(count(m[f], reduce_sum_op), 1);
}

TEST(Fuse, ARowIsNoColumn) {
  // The row sums of a square, spread over columns: they must leave the kernel first.
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", f32({4, 4}));
  b.result("y", x * reduce_sum(x, {1}));
  const FuncId f = finish(b);
  fuse(m, f);
  EXPECT_EQ(n_fused(m[f]), 2);
}

TEST(Fuse, OneOperandAsRowAndAsColumn) {
  Module m;
  Builder b(m, "f");
  const Var p = b.param("p", {DType::kI32, {4}});
  const Var at = iota(b, {4}, 0, DType::kI32);
  const Var causal = ge(reshape(at, {4, 1}), reshape(at, {1, 4}));
  const Var same = eq(broadcast(reshape(p, {4, 1}), {4, 4}), broadcast(p, {4, 4}));
  b.result("mask", logical_and(causal, same));
  const FuncId f = finish(b);
  fuse(m, f);
  EXPECT_EQ(m[f].nodes.size(), 1u);
  EXPECT_EQ(m[f].nodes[0].inputs.size(), 2u);  // p twice
}

TEST(Fuse, MasksAreMadeWhereTheyAreRead) {
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", f32({2, 3, 4, 4})), w = b.param("w", f32({4, 4}));
  const Var mask =
      broadcast(ge(iota(b, {4, 4}, 0, DType::kI32), iota(b, {4, 4}, 1, DType::kI32)), x.shape());
  const Var a = soft_max(select(mask, x, fill(b, -1e30, x.type())));
  const Var c = matmul(a, w);
  b.result("y", select(mask, c, zeros_like(c)));
  const FuncId f = finish(b);
  fuse(m, f);
  EXPECT_EQ(m[f].nodes.size(), 3u);
  for (const Node& n : m[f].nodes) EXPECT_EQ(n.inputs.size(), n.op == &dot_op ? 2u : 1u);
}

TEST(Fuse, ScalarsStayOneElement) {
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", f32({6, 7})), t = b.param("t", f32({}));
  b.result("y", x * (1.0 - pow(fill(b, 0.9, f32({})), t)));
  const FuncId f = finish(b);
  fuse(m, f);
  ASSERT_EQ(m[f].nodes.size(), 1u);
  const Node& n = m[f].nodes[0];
  const auto in = m[f].input_types(n), out = m[f].output_types(n);
  EXPECT_EQ(flops_of({n.op, &n.attrs, in, out, &m, n.regions}), 42 + 2);
}

TEST(Fuse, AScalarForMany) {
  // One scalar for two groups that nothing else ties: it stays apart.
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", f32({6, 7})), y = b.param("y", f32({5}));
  const Var s = exp(b.param("t", f32({})));
  b.result("x", x * s);
  b.result("y", y * s);
  const FuncId f = finish(b);
  fuse(m, f);
  EXPECT_EQ(n_fused(m[f]), 3);
}

TEST(Fuse, SumOfAllAndMean) {
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", f32({3, 5}));
  b.result("loss", reduce_mean(x * x, {0, 1}));
  const FuncId f = finish(b);
  fuse(m, f);
  EXPECT_EQ(m[f].nodes.size(), 1u);
}

TEST(Fuse, OptimizerStepOfOneParameter) {
  Module m;
  Builder b(m, "f");
  const Type t = f32({4, 3});
  const Var p = b.param("p", t), g = b.param("g", t), m0 = b.param("m", t), v0 = b.param("v", t);
  const Var lr = b.param("lr", f32({})), step = b.param("step", f32({}));
  const Var m1 = m0 * 0.9 + g * 0.1, v1 = v0 * 0.99 + g * g * 0.01;
  const Var c1 = 1.0 - pow(constant(b, 0.9, DType::kF32), step);
  b.result("p", p - lr * (m1 / c1) / (sqrt(v1) + 1e-8));
  b.result("m", m1);
  b.result("v", v1);
  const FuncId f = finish(b);
  fuse(m, f);
  ASSERT_EQ(m[f].nodes.size(), 1u);
  EXPECT_EQ(m[f].nodes[0].n_outputs, 3u);
}

TEST(Fuse, ConstantsForOthersAreMade) {
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", f32({2, 3}));
  const Var parts[] = {x, fill(b, 7, x.type())};
  b.result("y", concat(parts, 0));
  b.result("c", constant(b, 3, DType::kF32));
  const FuncId f = finish(b);
  const Function before = m[f];
  EXPECT_TRUE(run(m, f, "fuse"));
  expect_same_bits(m, before, m[f]);
  EXPECT_EQ(n_fused(m[f]), 2);
  EXPECT_EQ(count(m[f], constant_op), 0);
}

TEST(Fuse, SumOfWhatIsMadeInside) {
  Module m;
  Builder b(m, "f");
  const Var seed = b.param("seed", {DType::kI64, {}});
  b.result("a", reduce_sum(random_uniform(seed, {4, 5}, 1), {1}));
  b.result("b", reduce_sum(iota(b, {4, 5}, 1, DType::kF32), {1}));
  const FuncId f = finish(b);
  fuse(m, f);
}

TEST(Fuse, LayersShareBodies) {
  Module m;
  Builder b(m, "f");
  Var x = b.param("x", f32({2, 5}));
  for (int i = 0; i < 4; ++i) x = matmul(soft_max(x), b.weight(cat("w", i), f32({5, 5})));
  b.result("y", x);
  const FuncId f = finish(b);
  fuse(m, f);
  EXPECT_EQ(n_fused(m[f]), 4);
  EXPECT_EQ(m.functions.size(), 2u);
}

// A body in which an operand and a constant change places has the same ids in the same order.
TEST(Fuse, OperandsAndConstantsInTheOtherOrderAreOtherBodies) {
  const auto f_of = [](Module& m, auto&& other) {
    Builder b(m, "f");
    const Var x = b.param("x", f32({}));
    const Var c = other(b);
    b.result("a", x - c);
    b.result("b", c - x);
    return finish(b);
  };
  Module scalars;
  fuse(scalars, f_of(scalars, [](Builder& b) { return constant(b, 2, DType::kF32); }));
  EXPECT_EQ(scalars.functions.size(), 3u);
  Module iotas;
  fuse(iotas, f_of(iotas, [](Builder& b) { return iota(b, {4}, 0, DType::kF32); }));
  EXPECT_EQ(iotas.functions.size(), 3u);
  Module operands;  // two operands are numbered as they are met: one body, read the other way
  fuse(operands, f_of(operands, [](Builder& b) { return b.param("y", f32({})); }));
  EXPECT_EQ(operands.functions.size(), 2u);
}

TEST(Fuse, GradientsOfASelectOfScalars) {
  Module m;
  Builder b(m, "f");
  const Var c = b.param("c", {DType::kBool, {}});
  const Var x = b.param("x", f32({})), y = b.param("y", f32({}));
  const Var xs[] = {x, y};
  const auto g = grad(select(c, x, y) * b.param("w", f32({})), xs);
  b.result("dx", g[0]);
  b.result("dy", g[1]);
  fuse(m, finish(b));
}

// The operand of a reduction may only repeat one value along the row.
TEST(Fuse, RowsOfOneRepeatedValue) {
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", f32({2, 1})), s = b.param("s", f32({}));
  const Var wide = broadcast(x, {2, 3});
  b.result("sum", reduce_sum(wide, {1}));
  b.result("sum of exp", reduce_sum(broadcast(exp(x), {2, 3}), {1}));
  b.result("twice", reduce_sum(wide, {1}) + reduce_sum(broadcast(neg(x), {2, 3}), {1}));
  b.result("mean", reduce_mean(broadcast(exp(s), {3}), {0}));
  b.result("both dims", reduce_sum(broadcast(s * 2.0, {2, 3}), {0, 1}));
  b.result("sum of sum", reduce_sum(broadcast(reduce_sum(wide, {1}, true), {2, 5}), {1}));
  const Var xs[] = {x};
  b.result("d sum", grad(reduce_sum(reduce_sum(wide, {1}), {0}), xs)[0]);
  b.result("d max", grad(reduce_sum(reduce_max(wide, {1}), {0}), xs)[0]);
  const FuncId f = finish(b);
  fuse(m, f);
}

TEST(Fuse, FarMergesMustFreeMemory) {
  // Late use of an early mask: fusing it would keep two operands for the sake of one.
  Module m;
  Builder b(m, "f");
  const Var w = b.param("w", f32({4, 4}));
  Var x = matmul(b.param("x", f32({4, 4})), w);
  Var y = matmul(b.param("y", f32({4, 4})), w);
  const Var early = x + y;
  Var h = matmul(x, y);
  for (int i = 0; i < 12; ++i) h = matmul(h, w);
  b.result("z", h * early);
  const FuncId f = finish(b);
  fuse(m, f);
  EXPECT_EQ(n_fused(m[f]), 2);
}

TEST(Fuse, BarriersStay) {
  Module m;
  Builder b(m, "f");
  const Var xs[] = {exp(b.param("x", f32({4})))};
  b.result("y", neg(barrier(xs, {})[0]));
  const FuncId f = finish(b);
  fuse(m, f);
  EXPECT_EQ(n_fused(m[f]), 2);
  EXPECT_EQ(count(m[f], barrier_op), 1);
}

TEST(Fuse, SymbolicRows) {
  Module m;
  const Dim n = m.add_symbol("n", 6);
  Builder b(m, "f");
  const Var x = b.param("x", f32({2, n, 5}));
  b.result("y", soft_max(x * 2.0));
  const FuncId f = finish(b);
  fuse(m, f);
  EXPECT_EQ(m[f].nodes.size(), 1u);
}

}  // namespace
}  // namespace tegula
