#include "tegula/ir/extents.h"

#include <gtest/gtest.h>

#include "tegula/ops/conv.h"
#include "tegula/ops/math.h"

namespace tegula {
namespace {

constexpr DType kF32 = DType::kF32;

std::vector<LeastExtent> least_of(Module& m, Builder& b) {
  auto f = b.finish();
  EXPECT_TRUE(f.ok()) << f.error().to_string();
  auto least = least_extents(m, *f);
  EXPECT_TRUE(least.ok()) << least.error().to_string();
  return least.ok() ? *least : std::vector<LeastExtent>(m.symbols.size());
}

TEST(Extents, OfADimThatWouldBeNegative) {
  Module m;
  const Dim n = m.add_symbol("n", 10), k = m.add_symbol("k", 10);
  Builder b(m, "f");
  const Var x = b.param("x", {kF32, {n, k}});
  b.result("y", slice(x, 0, 3, *add(n, -3)));
  b.result("z", b.param("twice", {kF32, {*add(*mul(n, 2), -9)}}));
  const auto least = least_of(m, b);
  EXPECT_EQ(least[0].extent, 5);  // 2 n - 9
  EXPECT_EQ(least[0].why, "f: a value of type f32[2*n-9] would have a negative dim");
  EXPECT_EQ(least[1].extent, 0);
  EXPECT_EQ(least[1].why, "");
}

TEST(Extents, OfAnOpThatWantsMore) {
  Module m;
  const Dim n = m.add_symbol("n", 100);
  Builder b(m, "f");
  const Var x = b.param("x", {kF32, {1, 2, n}});
  b.result("y", conv(x, b.param("w", {kF32, {3, 2, 7}})));
  b.result("z", slice(x, 2, 40, 2));
  const auto least = least_of(m, b);
  EXPECT_EQ(least[0].extent, 42);
  EXPECT_EQ(least[0].why, "f: slice: elements 40 to 41 of dim 2 of [1,2,41]");
}

TEST(Extents, OfADimThatGrowsAsItsSymbolShrinks) {
  Module m;
  const Dim n = m.add_symbol("n", 10);
  Builder b(m, "f");
  b.result("y", b.param("x", {kF32, {*add(*mul(n, -1), 10)}}));
  auto f = b.finish();
  ASSERT_TRUE(f.ok()) << f.error().to_string();
  const auto least = least_extents(m, *f);
  ASSERT_FALSE(least.ok());
  EXPECT_NE(least.error().message.find("grows as n shrinks"), std::string::npos);
}

TEST(Extents, ErrorsSayWhy) {
  const std::vector<Symbol> symbols = {{"n", 8}, {"k", 4}};
  const std::vector<LeastExtent> least = {{3, "conv: a kernel of 3"}, {}};
  const auto message = [&](int64_t n, int64_t k) {
    const int64_t extents[] = {n, k};
    const Status st = check_extents(symbols, least, extents);
    return st.ok() ? std::string() : st.error().message;
  };
  EXPECT_EQ(message(3, 0), "");
  EXPECT_EQ(message(8, 4), "");
  EXPECT_EQ(message(2, 4), "extent 2 of n is outside [3, 8]: below 3, conv: a kernel of 3");
  EXPECT_EQ(message(9, 4), "extent 9 of n is outside [3, 8]");
  EXPECT_EQ(message(3, -1), "extent -1 of k is outside [0, 4]");
}

}  // namespace
}  // namespace tegula
