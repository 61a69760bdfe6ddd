#include "tegula/runtime/trace.h"

#include <gtest/gtest.h>

namespace tegula {
namespace {

DeviceSpan span(DeviceSpan::Kind kind, double begin_ms, double end_ms) {
  DeviceSpan s;
  s.kind = kind, s.begin_ms = begin_ms, s.end_ms = end_ms;
  return s;
}

// A copy, a kernel, one that waits for it, one that ends before that one does, and after a gap one
// more.
const std::vector<DeviceSpan> kSpans = {
    span(DeviceSpan::kCopy, 0, 2), span(DeviceSpan::kKernel, 2, 5), span(DeviceSpan::kKernel, 3, 9),
    span(DeviceSpan::kFill, 4, 6), span(DeviceSpan::kKernel, 10, 11)};

TEST(Trace, OwnTimesAddUpToThatInWhichSomethingRan) {
  EXPECT_EQ(own_ms(kSpans), (std::vector<double>{2, 3, 4, 0, 1}));
  EXPECT_EQ(busy_ms(kSpans), 10);
  EXPECT_EQ(length_ms(kSpans), 11);
}

TEST(Trace, SpansBelongToTheStepsThatLaunchedThem) {
  const int64_t launches[] = {1, 0, 2, 1}, fewer[] = {1, 0, 2};
  EXPECT_EQ(steps_of(kSpans, launches), (std::vector<int>{-1, 0, 2, 2, 3}));
  EXPECT_TRUE(steps_of(kSpans, fewer).empty());
}

}  // namespace
}  // namespace tegula
