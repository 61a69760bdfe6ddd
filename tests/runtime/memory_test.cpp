// Regions: aligned for huge pages, poisoned by any number of threads, touched without a change.
#include "tegula/runtime/memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace tegula {
namespace {

TEST(Region, FromTwoMebibytesOnBeginsOnAHugePage) {
  for (int64_t bytes : {int64_t{1}, int64_t{4096}, int64_t{2} << 20, (int64_t{5} << 20) + 3}) {
    auto r = Region::allocate(bytes);
    ASSERT_TRUE(r.ok());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(r->data()) % (bytes >= 2 << 20 ? 2 << 20 : 4096), 0u);
    auto* p = static_cast<uint8_t*>(r->data());
    EXPECT_EQ(std::count(p, p + bytes, 0), bytes);
    std::memset(p, 1, static_cast<size_t>(bytes));
    EXPECT_EQ(r->bytes(), bytes);
  }
}

TEST(Region, PoisonedInParallelTellsTheHighestByteWritten) {
  ThreadPool pool(3);
  const int64_t bytes = (int64_t{9} << 20) + 5;
  Region r = std::move(*Region::allocate(bytes));
  r.poison(0xa5, &pool);
  const auto* p = static_cast<const uint8_t*>(r.data());
  EXPECT_EQ(std::count(p, p + bytes, 0xa5), bytes);
  EXPECT_EQ(r.touched(0xa5), 0);
  first_touch(r.data(), bytes, pool);
  EXPECT_EQ(r.touched(0xa5), 0);
  static_cast<uint8_t*>(r.data())[12345] = 1;
  EXPECT_EQ(r.touched(0xa5), 12346);
}

int64_t resident_pages(const Region& r) {
  std::vector<unsigned char> in(static_cast<size_t>((r.bytes() + 4095) / 4096));
  EXPECT_EQ(mincore(r.data(), static_cast<size_t>(r.bytes()), in.data()), 0);
  return std::count_if(in.begin(), in.end(), [](unsigned char c) { return (c & 1) != 0; });
}

TEST(Region, FirstTouchBringsEveryPage) {
  ThreadPool pool(2);
  Region r = std::move(*Region::allocate((1 << 20) + 1));
  EXPECT_EQ(resident_pages(r), 0);
  first_touch(r.data(), r.bytes(), pool);
  EXPECT_EQ(resident_pages(r), 257);
  EXPECT_EQ(r.touched(0), 0);
  EXPECT_GE(memory_nodes(), 1);
}

}  // namespace
}  // namespace tegula
