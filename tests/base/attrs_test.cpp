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

TEST(Attrs, ValuesOfEveryKindCopyMoveAndCompare) {
  const std::string text(40, 'x');  // too long for a string's own bytes
  const std::vector<AttrValue> values = {true,
                                         int64_t{-3},
                                         uint8_t{200},
                                         0.25,
                                         text,
                                         "c",
                                         DType::kBF16,
                                         std::vector<int64_t>{1, 2},
                                         std::vector<Dim>{Dim(4), Dim::of(0, 9)}};
  EXPECT_TRUE(values[2].holds<int64_t>() && values[5].holds<std::string>());
  for (size_t i = 0; i < values.size(); ++i) {
    AttrValue copy = values[i], other = values[(i + 1) % values.size()];
    for (size_t j = 0; j < values.size(); ++j) EXPECT_EQ(copy == values[j], i == j) << i << j;
    other = copy;  // of another kind
    EXPECT_EQ(other, values[i]);
    const AttrValue moved = std::move(other);
    EXPECT_EQ(moved, values[i]);
    copy = *&copy;
    EXPECT_EQ(copy, values[i]);
    EXPECT_EQ(copy.index(), values[i].index());
  }
  EXPECT_EQ(values[4].get<std::string>(), text);
  EXPECT_EQ(values[0].get_if<int64_t>(), nullptr);
}

TEST(AttrsDeathTest, TheWrongTypeNamesTheAttribute) {
  const Attrs a{{"scale", 0.5}};
  EXPECT_DEATH(static_cast<void>(a.i("scale")), "attribute scale");
}

}  // namespace
}  // namespace tegula
