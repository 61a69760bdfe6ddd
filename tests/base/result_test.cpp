#include "tegula/base/result.h"

#include <gtest/gtest.h>

#include <memory>

namespace tegula {
namespace {

Result<int> half_of(int n) {
  if (n % 2) return invalid_argument(cat(n, " is odd: give an even number"));
  return n / 2;
}

Result<int> quarter_of(int n) {
  const int half = TEGULA_TRY(half_of(n));
  return TEGULA_TRY(half_of(half));
}

Status check_even(int n) {
  TEGULA_TRY(half_of(n));
  return {};
}

TEST(Result, HoldsAValueOrAnError) {
  EXPECT_EQ(*half_of(6), 3);
  const Result<int> bad = half_of(7);
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().code, Code::kInvalidArgument);
  EXPECT_EQ(bad.error().message, "7 is odd: give an even number");
}

TEST(Result, TryReturnsTheFirstErrorUnchanged) {
  EXPECT_EQ(*quarter_of(12), 3);
  EXPECT_EQ(quarter_of(7).error().message, "7 is odd: give an even number");
  EXPECT_EQ(quarter_of(6).error().message, "3 is odd: give an even number");
  EXPECT_EQ(quarter_of(6).error().where.line(), half_of(3).error().where.line());
}

TEST(Result, StatusCarriesErrorsToo) {
  EXPECT_TRUE(check_even(4).ok());
  EXPECT_EQ(check_even(5).error().code, Code::kInvalidArgument);
}

TEST(Result, MovesWhatCannotBeCopied) {
  auto make = []() -> Result<std::unique_ptr<int>> { return std::make_unique<int>(5); };
  auto pass = [&]() -> Result<std::unique_ptr<int>> {
    std::unique_ptr<int> p = TEGULA_TRY(make());
    *p += 1;
    return p;
  };
  const std::unique_ptr<int> p = pass().value();
  EXPECT_EQ(*p, 6);
}

TEST(Result, CopiesAndAssignsBothWays) {
  const std::string long_text(40, 'v');
  const Result<std::string> good = long_text, bad = invalid_argument(std::string(40, 'e'));
  Result<std::string> r = good;
  EXPECT_EQ(*r, long_text);
  r = bad;
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().message, bad.error().message);
  r = good;
  EXPECT_EQ(*r, *good);
  r = *&r;
  EXPECT_EQ(*r, *good);
  Result<std::string> from = bad;
  const Result<std::string> to = std::move(from);
  EXPECT_EQ(to.error().message, bad.error().message);
  EXPECT_FALSE(from.ok());  // NOLINT: a failed Result that is moved from has still failed
  from = long_text;
  EXPECT_EQ(*from, long_text);
}

TEST(Result, ErrorTextNamesCodeMessageAndPlace) {
  const std::string text = half_of(1).error().to_string();
  EXPECT_EQ(text.find("invalid_argument: 1 is odd"), 0u) << text;
  EXPECT_NE(text.find("(result_test.cpp:"), std::string::npos) << text;
}

TEST(ResultDeathTest, ValueOfAnErrorAborts) {
  EXPECT_DEATH(half_of(9).value(), "value\\(\\) of a failed Result: .*9 is odd");
}

TEST(ResultDeathTest, BrokenInvariantNamesItself) {
  EXPECT_DEATH(TEGULA_CHECK(1 + 1 == 3, "n = ", 4),
               "broken invariant at result_test.cpp:[0-9]+: 1 \\+ 1 == 3: n = 4");
}

TEST(Str, JoinsEveryKind) {
  EXPECT_EQ(cat("a", 'b', 3, true, 0.5, std::vector<int>{1, 2}), "ab3true0.5[1,2]");
  const char* text = "t";
  const std::string_view view = std::string_view("views").substr(0, 4);
  EXPECT_EQ(cat(text, view, std::string("s"), uint64_t{1} << 63, int64_t{-5}, uint8_t{7}, 2.5f),
            "tviews9223372036854775808-572.5");
  EXPECT_EQ(cat(), "");
}

}  // namespace
}  // namespace tegula
