#include "tegula/base/range.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tegula {
namespace {

TEST(Range, SaysWhatHoldsOfAllOrSome) {
  const std::vector<int> some = {1, 2, 3};
  const auto is_odd = [](int x) { return x % 2 == 1; };
  const auto is_small = [](int x) { return x < 4; };
  EXPECT_TRUE(any_of(some, is_odd));
  EXPECT_FALSE(all_of(some, is_odd));
  EXPECT_TRUE(all_of(some, is_small));
  EXPECT_FALSE(any_of(std::vector<int>{}, is_small));
  EXPECT_TRUE(all_of(std::vector<int>{}, is_odd));
}

TEST(Range, FindsValuesInContainersAndArrays) {
  const std::vector<std::string> names = {"a", "b"};
  constexpr int kPrimes[] = {2, 3, 5};
  EXPECT_TRUE(contains(names, "b"));
  EXPECT_FALSE(contains(names, std::string("c")));
  EXPECT_TRUE(contains(kPrimes, 5));
  EXPECT_FALSE(contains(kPrimes, 4));
}

}  // namespace
}  // namespace tegula
