// sum_products: which products become one, and what its bits are.
#include <cmath>
#include <string>

#include "tests/passes/passes.h"

namespace tegula {
namespace {

constexpr DType F = DType::kF32;

PassOptions of_a_step(Mode mode = Mode::kExact) {
  PassOptions o;
  o.mode = mode, o.is_step = true;
  return o;
}

// (a0·b0 + a1·b1) + a2·b2
FuncId three(Module& m, int64_t n0, int64_t n1, int64_t n2) {
  Builder b(m, "f");
  Var sum;
  int i = 0;
  for (const int64_t n : {n0, n1, n2}) {
    const std::string at = std::to_string(i++);
    const Var x = b.param("a" + at, {F, {3, n}}), w = b.param("b" + at, {F, {n, 5}});
    const Var y = dot("m k, k n -> m n", x, w);
    sum = sum.valid() ? sum + y : y;
  }
  b.result("y", sum);
  return finish(b);
}

TEST(SumProducts, OfWhatIsLongTogetherAreOne) {
  const auto n_dots = [](int64_t n0, int64_t n1, int64_t n2, const PassOptions& o) {
    Module m;
    const FuncId f = three(m, n0, n1, n2);
    const bool changed = run(m, f, "sum_products", o);
    EXPECT_EQ(changed, count(m[f], dot_op) == 1);
    EXPECT_FALSE(run(m, f, "sum_products", o)) << "twice is once";
    return count(m[f], dot_op);
  };
  EXPECT_EQ(n_dots(512, 256, 256, of_a_step()), 1);
  EXPECT_EQ(n_dots(256, 128, 128, of_a_step()), 1);
  EXPECT_EQ(n_dots(256, 128, 120, of_a_step()), 3) << "504 in all";
  EXPECT_EQ(n_dots(512, 260, 256, of_a_step()), 3) << "260 has no eight shards";
  EXPECT_EQ(n_dots(512, 256, 256, of_a_step(Mode::kFast)), 3);
  PassOptions no_step = of_a_step();
  no_step.is_step = false;
  EXPECT_EQ(n_dots(512, 256, 256, no_step), 3);
}

TEST(SumProducts, LeaveAloneWhatIsReadApart) {
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", {F, {3, 512}}), w = b.param("w", {F, {512, 5}});
  const Var v = b.param("v", {F, {512, 5}});
  const Var y = dot("m k, k n -> m n", x, w);
  b.result("y", y), b.result("sum", y + dot("m k, k n -> m n", x, v));
  const FuncId f = finish(b);
  EXPECT_FALSE(run(m, f, "sum_products", of_a_step()));
}

HostTensor drawn(const Type& type, int64_t salt) {
  HostTensor t(type);
  for (int64_t i = 0; i < t.numel(); ++i)
    t.put(i, std::sin(static_cast<double>(i * i + 31 * salt)) * 1e3);
  return t;
}

// One chain a shard through the addends in their order, and a tree, as independent loops make it.
void expect_chains(const std::vector<HostTensor>& a, const std::vector<HostTensor>& b,
                   const HostTensor& got) {
  const int64_t n_rows = got.type.shape[0].bound(), n_cols = got.type.shape[1].bound();
  for (int64_t r = 0; r < n_rows; ++r)
    for (int64_t c = 0; c < n_cols; ++c) {
      float shard[8] = {};
      for (int64_t s = 0; s < 8; ++s)
        for (size_t j = 0; j < a.size(); ++j) {
          const int64_t k = a[j].type.shape[1].bound();
          for (int64_t i = s * k / 8; i < (s + 1) * k / 8; ++i)
            shard[s] = std::fma(static_cast<float>(a[j].at(r * k + i)),
                                static_cast<float>(b[j].at(i * n_cols + c)), shard[s]);
        }
      for (int w = 1; w < 8; w *= 2)
        for (int s = 0; s < 8; s += 2 * w) shard[s] += shard[s + w];
      ASSERT_EQ(static_cast<float>(got.at(r * n_cols + c)), shard[0]) << r << " " << c;
    }
}

TEST(SumProducts, AreChainsThroughTheShardsOfEach) {
  Module m;
  const FuncId f = three(m, 512, 64, 256);
  ASSERT_TRUE(run(m, f, "sum_products", of_a_step()));
  std::vector<HostTensor> a, b, in;
  for (const int64_t n : {512, 64, 256}) {
    a.push_back(drawn({F, {3, n}}, n)), b.push_back(drawn({F, {n, 5}}, n + 1));
    in.push_back(a.back()), in.push_back(b.back());
  }
  expect_chains(a, b, (*interpret(m, m[f], in, Arithmetic::kNaive))[0]);
}

// A fused projection's gradient: three parts side by side are three addends.
TEST(SumProducts, OfAConcatenationAreThoseOfItsParts) {
  Module m;
  Builder builder(m, "f");
  std::vector<Var> parts;
  for (const char* name : {"q", "k", "v"}) parts.push_back(builder.param(name, {F, {3, 256}}));
  const Var w = builder.param("w", {F, {768, 5}});
  builder.result("y", dot("m k, k n -> m n", concat(parts, 1), w));
  const FuncId f = finish(builder);
  ASSERT_TRUE(run(m, f, "sum_products", of_a_step()));
  EXPECT_FALSE(run(m, f, "sum_products", of_a_step()));
  std::vector<HostTensor> a, b, in;
  const HostTensor whole = drawn({F, {768, 5}}, 9);
  for (int64_t j = 0; j < 3; ++j) {
    a.push_back(drawn({F, {3, 256}}, j)), in.push_back(a.back());
    HostTensor part({F, {256, 5}});
    for (int64_t i = 0; i < part.numel(); ++i) part.put(i, whole.at(j * part.numel() + i));
    b.push_back(part);
  }
  in.push_back(whole);
  expect_chains(a, b, (*interpret(m, m[f], in, Arithmetic::kNaive))[0]);
}

// The gradient of that projection's weight reads what the sum has put side by side, where it is
// smaller: of more tokens than the weight has rows.
TEST(SumProducts, AProductThatKeepsTheColumnsReadsTheSame) {
  const auto build = [](Module& m, int64_t tokens, bool is_read_elsewhere) {
    Builder b(m, "f");
    std::vector<Var> parts;
    for (const int64_t n : {512, 64, 128}) parts.push_back(b.param(cat("d", n), {F, {tokens, n}}));
    const Var x = b.param("x", {F, {tokens, 5}}), w = b.param("w", {F, {704, 5}});
    const Var d = concat(parts, 1);
    b.result("dx", dot("m k, k n -> m n", d, w));
    b.result("dw", dot("m a, m b -> a b", x, d));
    if (is_read_elsewhere) b.result("bias", reduce_sum(d, {0}));
    return finish(b);
  };
  for (const auto& [tokens, is_read_elsewhere] : {std::pair{7, false}, {7, true}, {3, false}}) {
    Module before, after;
    const FuncId f = build(before, tokens, is_read_elsewhere),
                 g = build(after, tokens, is_read_elsewhere);
    ASSERT_TRUE(run(after, g, "sum_products", of_a_step()));
    EXPECT_FALSE(run(after, g, "sum_products", of_a_step()));
    const bool is_shared = tokens > 5 && !is_read_elsewhere;
    EXPECT_EQ(count(after[g], slice_op), is_shared ? 6 : 3) << "of w, and of columns";
    std::vector<HostTensor> in;
    for (const Param& p : before[f].params)
      in.push_back(drawn(before[f].type(p.value), static_cast<int64_t>(in.size())));
    const auto a = *interpret(before, before[f], in, Arithmetic::kNaive);
    const auto b = *interpret(after, after[g], in, Arithmetic::kNaive);
    ASSERT_EQ(a[1].type, b[1].type);
    for (int64_t i = 0; i < a[1].numel(); ++i) ASSERT_EQ(a[1].at(i), b[1].at(i)) << i;
  }
}

}  // namespace
}  // namespace tegula
