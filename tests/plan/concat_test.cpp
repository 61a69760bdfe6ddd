// Concats whose operands are written in place: what may be, the same bits, and what must stay a
// copy.
#include <cmath>
#include <cstdlib>

#include "tegula/ops/attention.h"
#include "tegula/ops/autodiff.h"
#include "tegula/ops/math.h"
#include "tegula/ops/norm.h"
#include "tegula/runtime/compile.h"
#include "tests/common/run_plan.h"

namespace tegula {
namespace {

constexpr int64_t kBatch = 2, kSeq = 5, kHeads = 3, kDim = 8;

// dq, dk and dv side by side, as the gradient of a joint projection wants them.
Plan gradients(bool read_elsewhere, DType dtype = DType::kF32) {
  auto m = std::make_shared<Module>();
  Builder b(*m, "gradients");
  const Type t = {dtype, {kBatch, kSeq, kHeads, kDim}};
  const Var q = b.param("q", t), k = b.param("k", t), v = b.param("v", t), w = b.param("w", t);
  AttentionOptions causal;
  causal.is_causal = true;
  const Var xs[] = {q, k, v};
  const auto g =
      grad(cast(reduce_sum(attention(q, k, v, causal).o * w, {0, 1, 2, 3}), DType::kF32), xs);
  std::vector<Var> rows;
  for (const Var& x : g) rows.push_back(reshape(x, {kBatch, kSeq, kHeads * kDim}));
  b.result("all", concat(rows, 2));
  if (read_elsewhere) b.result("twice", rows[1] + rows[1]);
  CompileOptions o;
  o.plan.verify = true, o.plan.target.n_threads = 2;
  auto compiled = compile(m, *b.finish_into_module(), o);
  EXPECT_TRUE(compiled.ok()) << compiled.error().to_string();
  return *compiled->plan;
}

const Step* concat_of(const Plan& p) {
  for (const Step& s : p.steps)
    if (s.op->name == "concat") return &s;
  ADD_FAILURE() << "no concat\n" << p.to_string();
  return nullptr;
}

bool joins(const Plan& p) {
  const Step* s = concat_of(p);
  bool all = true, any = false;
  for (const PlanTensor& t : s->in) {
    all = all && t.slot == s->out[0].slot;
    any = any || t.slot == s->out[0].slot;
  }
  EXPECT_EQ(all, any) << p.to_string();
  EXPECT_EQ(s->bytes == 0, all);
  return all;
}

TEST(Concat, OperandsAreWrittenInPlace) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Plan in_place = gradients(false, dtype), copied = gradients(true, dtype);
    EXPECT_TRUE(joins(in_place));
    EXPECT_FALSE(joins(copied)) << "a piece that others read stays by itself";
    std::vector<HostTensor> in;
    for (const auto& p : in_place.params)
      in.push_back(test::random_tensor(p.tensor.type, in.size()));
    for (int threads : {1, 2}) {
      const auto a = test::run_plan(in_place, in, {}, threads);
      const auto b = test::run_plan(copied, in, {}, threads);
      for (int64_t i = 0; i < a[0].numel(); ++i) ASSERT_EQ(a[0].at(i), b[0].at(i)) << i;
    }
  }
}

// Rows of whole pieces, by kernels that know no strides: they are written where they go if each
// begins where a buffer may.
TEST(Concat, WholePiecesAreWrittenInPlaceByAnyKernel) {
  const auto plan_of = [](int64_t width) {
    auto m = std::make_shared<Module>();
    Builder b(*m, "norms");
    const Var x = b.param("x", {DType::kF32, {4, 3, width}});
    const Var w = b.param("w", {DType::kF32, {width}});
    std::vector<Var> rows;
    for (int64_t i = 0; i < 4; ++i) rows.push_back(layer_norm(slice(x, 0, i, 1), w, {}, 1e-5));
    b.result("all", concat(rows, 0));
    CompileOptions o;
    o.plan.verify = true;
    auto compiled = compile(m, *b.finish_into_module(), o);
    EXPECT_TRUE(compiled.ok()) << compiled.error().to_string();
    return *compiled->plan;
  };
  const Plan aligned = plan_of(16), odd = plan_of(15);
  EXPECT_TRUE(joins(aligned)) << aligned.to_string();
  EXPECT_FALSE(joins(odd)) << "a piece of 180 bytes";
  const std::vector<HostTensor> in = {test::random_tensor(aligned.params[0].tensor.type, 0),
                                      test::random_tensor(aligned.params[1].tensor.type, 1)};
  const auto y = test::run_plan(aligned, in);
  for (int64_t r = 0; r < 12; ++r) {
    double mean = 0, square = 0;
    for (int64_t i = 0; i < 16; ++i) mean += in[0].at(r * 16 + i) / 16;
    for (int64_t i = 0; i < 16; ++i) square += std::pow(in[0].at(r * 16 + i) - mean, 2) / 16;
    for (int64_t i = 0; i < 16; ++i)
      EXPECT_NEAR(y[0].at(r * 16 + i),
                  (in[0].at(r * 16 + i) - mean) / std::sqrt(square + 1e-5) * in[1].at(i), 1e-5);
  }
}

// Halves of heads (a rotation's gradient) are put together, and then heads of several tensors.
TEST(Concat, PiecesThatAreConcatsAreWrittenInPlace) {
  auto m = std::make_shared<Module>();
  Builder b(*m, "nested");
  const Type half = {DType::kF32, {kBatch, kSeq, kHeads, kDim}};
  std::vector<Var> whole;
  for (const char* name : {"q", "k"}) {
    const Var x = b.param(name, half), y = b.param(cat(name, " too"), half);
    const Var parts[] = {x * y, x - y};
    whole.push_back(reshape(concat(parts, 3), {kBatch, kSeq, 2 * kHeads * kDim}));
  }
  b.result("all", concat(whole, 2));
  CompileOptions o;
  o.plan.verify = true, o.plan.target = *find_target("h100");
  const auto compiled = compile(m, *b.finish_into_module(), o);
  ASSERT_TRUE(compiled.ok()) << compiled.error().to_string();
  const Plan& plan = *compiled->plan;
  int n_written = 0;
  for (const Step& s : plan.steps) {
    if (s.op->name == "concat") {
      EXPECT_EQ(s.bytes, 0) << plan.to_string();
      continue;
    }
    for (const PlanTensor& t : s.out) {
      EXPECT_EQ(t.slot, plan.steps.back().out[0].slot);
      EXPECT_EQ(t.stride[1], 4 * kHeads * kDim) << "from row to row of the whole";
      EXPECT_EQ(t.byte_offset % (8 * kDim), n_written++ % 2 * 4 * kDim) << "its half of a head";
    }
  }
  EXPECT_EQ(n_written, 4);
  Plan broken = plan;  // a half over the other
  for (Step& s : broken.steps)
    if (s.op->name != "concat") s.out[0].byte_offset = 0;
  EXPECT_FALSE(verify_plan(broken).ok());
}

// A device's kernel of sums shows its result with the summed dims, of one element, still there.
TEST(Concat, SumsOfADeviceAreWrittenInPlace) {
  auto m = std::make_shared<Module>();
  Builder b(*m, "sums");
  const Var sum = reduce_sum(b.param("x", {DType::kF32, {3, 4, 2}}), {2});
  const Var parts[] = {sum, neg(sum)};
  b.result("all", concat(parts, 1));
  CompileOptions o;
  o.plan.verify = true, o.plan.target = *find_target("h100");
  const auto compiled = compile(m, *b.finish_into_module(), o);
  ASSERT_TRUE(compiled.ok()) << compiled.error().to_string();
  EXPECT_TRUE(joins(*compiled->plan));
  Plan narrow = *compiled->plan;  // rows that do not leave room for the other's
  for (Step& s : narrow.steps)
    if (s.op->name != "concat")
      for (PlanTensor& t : s.out) t.stride[0] = 4;
  EXPECT_FALSE(verify_plan(narrow).ok());
}

TEST(Concat, TheVerifierKnowsWherePiecesLie) {
  const Plan good = gradients(false);
  const auto broken = [&](auto&& change) {
    Plan p = good;
    for (Step& s : p.steps) change(s);
    const auto st = verify_plan(p);
    return !st.ok();
  };
  EXPECT_FALSE(broken([](Step&) {}));
  EXPECT_TRUE(broken([](Step& s) {  // dq over dk
    if (s.op->name == "attention_bwd") s.out[0].byte_offset = s.out[1].byte_offset;
  }));
  EXPECT_TRUE(broken([](Step& s) {  // a row of dk over the next one's dq
    if (s.op->name == "attention_bwd") s.out[1].stride[1] -= 8;
  }));
  EXPECT_TRUE(broken([](Step& s) {  // read where dk lies
    if (s.op->name == "concat") s.in[0].byte_offset = s.in[1].byte_offset;
  }));
  EXPECT_TRUE(broken([](Step& s) {  // two exchanged: the copy would write over what it reads
    if (s.op->name == "concat") std::swap(s.in[0], s.in[1]);
  }));
}

}  // namespace
}  // namespace tegula
