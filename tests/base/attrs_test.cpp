#include "tegula/base/attrs.h"

#include <gtest/gtest.h>

namespace tegula {
namespace {

TEST(Attrs, KeepsNamesSortedAndReplaces) {
  Attrs a{{"scale", 0.5}, {"dims", std::vector<int64_t>{1, 2}}, {"causal", true}};
  a.set("scale", 0.25);
  std::string names;
  for (const auto& [name, value] : a) names += name + " ";
  EXPECT_EQ(names, "causal dims scale ");
  EXPECT_EQ(a.f("scale"), 0.25);
  EXPECT_EQ(a.ints("dims"), (std::vector<int64_t>{1, 2}));
  EXPECT_TRUE(a.flag("causal"));
}

TEST(Attrs, EqualityDoesNotDependOnTheOrderOfSetting) {
  const Attrs a{{"x", int64_t{1}}, {"y", int64_t{2}}};
  const Attrs b{{"y", int64_t{2}}, {"x", int64_t{1}}};
  EXPECT_EQ(a, b);
  EXPECT_FALSE((a == Attrs{{"x", int64_t{1}}, {"y", 2.0}}));
}

TEST(Attrs, AbsentMeansTheFallback) {
  Attrs a{{"x", int64_t{3}}};
  EXPECT_EQ(a.get_or<int64_t>("y", 7), 7);
  EXPECT_EQ(a.get_or<int64_t>("x", 7), 3);
  EXPECT_FALSE(a.flag("causal"));
  EXPECT_EQ(a.find("y"), nullptr);
  a.erase("y");
  a.erase("x");
  EXPECT_EQ(a.size(), 0u);
  EXPECT_FALSE(a.has("x"));
}

TEST(AttrsDeathTest, TheWrongTypeNamesTheAttribute) {
  const Attrs a{{"scale", 0.5}};
  EXPECT_DEATH(static_cast<void>(a.i("scale")), "attribute scale");
}

}  // namespace
}  // namespace tegula
