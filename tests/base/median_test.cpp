#include "tegula/base/median.h"

#include <gtest/gtest.h>

namespace tegula {
namespace {

TEST(Median, IsTheMiddleOneInWhateverOrder) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({5}), 5);
  EXPECT_EQ(median({4, 1, 3, 2}), 3);  // the larger of the two in the middle
  EXPECT_EQ(median({7, 7, 0, 9, 7}), 7);
}

}  // namespace
}  // namespace tegula
