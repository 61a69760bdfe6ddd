// Regions: aligned for huge pages, poisoned by any number of threads, touched without a change.
#include "tegula/runtime/memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

namespace tegula {
namespace {

TEST(Region, FromTwoMebibytesOnBeginsOnAHugePage) {
  MemoryAccount account;
  for (int64_t bytes : {int64_t{1}, int64_t{4096}, int64_t{2} << 20, (int64_t{5} << 20) + 3}) {
    auto r = Region::allocate(account, bytes);
    ASSERT_TRUE(r.ok());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(r->data()) % (bytes >= 2 << 20 ? 2 << 20 : 4096), 0u);
    auto* p = static_cast<uint8_t*>(r->data());
    EXPECT_EQ(std::count(p, p + bytes, 0), bytes);
    std::memset(p, 1, static_cast<size_t>(bytes));
    EXPECT_EQ(r->bytes(), bytes);
  }
}

TEST(Region, PoisonedInParallelTellsTheHighestByteWritten) {
  MemoryAccount account;
  ThreadPool pool(3);
  const int64_t bytes = (int64_t{9} << 20) + 5;
  Region r = std::move(*Region::allocate(account, bytes));
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
  MemoryAccount account;
  ThreadPool pool(2);
  Region r = std::move(*Region::allocate(account, (1 << 20) + 1));
  EXPECT_EQ(resident_pages(r), 0);
  first_touch(r.data(), r.bytes(), pool);
  EXPECT_EQ(resident_pages(r), 257);
  EXPECT_EQ(r.touched(0), 0);
  EXPECT_GE(memory_nodes(), 1);
}

TEST(Region, TellsWhatWasWrittenBehindItsEnd) {
  MemoryAccount account;
  Region r = std::move(*Region::allocate(account, 5000));
  auto* p = static_cast<uint8_t*>(r.data());
  r.poison(0x5a);
  EXPECT_EQ(r.touched(0x5a), 0);
  p[4999] = 1;
  EXPECT_EQ(r.touched(0x5a), r.bytes());
  p[5003] = 1;
  EXPECT_EQ(r.touched(0x5a), 5004);
}

// For sizes below and above a huge page, moved or not.
TEST(Region, BetweenGuardsEndsAProcessThatLeavesIt) {
  MemoryAccount account;
  for (int64_t bytes : {int64_t{1}, int64_t{4096}, (int64_t{3} << 20) + 4096}) {
    Region old = std::move(*Region::between_guards(account, bytes));
    Region r = std::move(old);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(r.data()) % (bytes >= 2 << 20 ? 2 << 20 : 4096), 0u);
    auto* volatile p = static_cast<uint8_t*>(r.data());
    const int64_t end = (bytes + 4095) / 4096 * 4096;
    std::memset(p, 1, static_cast<size_t>(end));
    EXPECT_DEATH(p[-1] = 1, "");
    EXPECT_DEATH(p[end] = 1, "");
  }
}

TEST(ProcessMemory, SeesWhatIsTakenAndWhatIsTouched) {
  MemoryAccount account;
  const ProcessMemory before = process_memory(account.live_bytes());
  EXPECT_GE(before.peak_touched_bytes, before.touched_bytes);
  EXPECT_GT(before.touched_bytes, 0);
  constexpr int64_t kBytes = 64 << 20;
  Region r = std::move(*Region::allocate(account, kBytes));
  auto heap = std::make_unique<char[]>(1 << 20);
  const ProcessMemory taken = process_memory(account.live_bytes());
  // A sanitizer's own allocator does not tell mallinfo2 what it gives.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_GE(taken.allocated_bytes, before.allocated_bytes + kBytes + (heap ? 1 << 20 : 0));
#endif
  std::memset(r.data(), 1, kBytes);
  const ProcessMemory touched = process_memory(account.live_bytes());
  EXPECT_GE(touched.touched_bytes, before.touched_bytes + kBytes);
  EXPECT_GE(touched.peak_touched_bytes, touched.touched_bytes);
  r = Region();
  EXPECT_LE(process_memory(account.live_bytes()).allocated_bytes, taken.allocated_bytes - kBytes);
}

TEST(MemoryAccount, CountsItsOwnRegionsAlone) {
  MemoryAccount mine, other;
  {
    const Region a = std::move(*Region::allocate(mine, 100));
    Region b = std::move(*Region::between_guards(mine, 30)),
           c = std::move(*Region::allocate(other, 7));
    EXPECT_EQ(mine.live_bytes(), 130);
    EXPECT_EQ(other.live_bytes(), 7);
    std::swap(b, c);  // each goes on with its bytes
    b = Region();
    EXPECT_EQ(mine.live_bytes(), 130);
    EXPECT_EQ(other.live_bytes(), 0);
  }
  EXPECT_EQ(mine.live_bytes(), 0);
  EXPECT_EQ(mine.peak_bytes(), 130);
  mine.reset_peak();
  EXPECT_EQ(mine.peak_bytes(), 0);
  EXPECT_EQ(other.peak_bytes(), 7);
}

}  // namespace
}  // namespace tegula
