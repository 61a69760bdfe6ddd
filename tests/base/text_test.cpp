#include "tegula/base/text.h"

#include <gtest/gtest.h>

namespace tegula {
namespace {

TEST(Text, IsTakenApartAtASeparator) {
  EXPECT_EQ(split("a,,bc,", ','), (std::vector<std::string>{"a", "", "bc"}));
  EXPECT_TRUE(split("", ',').empty());
  std::string_view whole = "no separator";
  EXPECT_EQ(take_until(',', whole), "no separator");
  EXPECT_TRUE(whole.empty());
  EXPECT_EQ(take_until(',', whole), "");
}

TEST(Text, ListsAreJoined) {
  EXPECT_EQ(joined(std::vector<int>{1, 2, 3}), "1, 2, 3");
  EXPECT_EQ(joined(std::vector<std::string>{}, "|"), "");
  EXPECT_EQ(joined(std::vector<int>{1, 2}, "+", [](int n) { return cat("<", n, ">"); }), "<1>+<2>");
}

TEST(Text, EditsAreCounted) {
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("Llama", "llama"), 0U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
}

TEST(Text, IsPrintedWhateverItsLength) {
  EXPECT_EQ(printed("%.1f %%, %s", 2.25, "x"), "2.2 %, x");
  EXPECT_EQ(printed("%5000d", 1).size(), 5000U);
}

}  // namespace
}  // namespace tegula
