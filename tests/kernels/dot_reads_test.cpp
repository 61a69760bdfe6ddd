// The reads of each rung of the matmul ladder, counted by running it, against the formulas of
// docs/kernels/matmul_cpu.md. n is a multiple of every tile; the cache holds two rows of tiles, but
// no matrix.
#include "tegula/kernels/cpu/common/dot_reads.h"

#include <gtest/gtest.h>

#include "tegula/kernels/cpu/common/dot_plan.h"
#include "tegula/kernels/cpu/common/ladder.h"

namespace tegula {
namespace {

constexpr int64_t kN = 96, kCache = 8000;
constexpr int64_t kSquare = kN * kN, kCube = kN * kN * kN;

kernel::Reads count(std::string_view rung, const Tuning& tuning = {}) {
  bool is_equal = false;
  const kernel::Reads r = kernel::count_reads(rung, kN, kN, kN, kCache, tuning, &is_equal);
  EXPECT_TRUE(is_equal) << rung;
  return r;
}

TEST(DotReads, NaiveReadsTwoOperandsAProduct) {
  const auto r = count("dot_naive");
  EXPECT_EQ(r.a + r.b, 2 * kCube);
  EXPECT_EQ(r.far_a + r.far_b, kSquare + kCube);  // a row of a stays
}

TEST(DotReads, CacheTilesReadMemoryAFractionAsOften) {
  const auto r = count("dot_cache_tiled");
  EXPECT_EQ(r.far_a + r.far_b, kSquare + kCube / kernel::kLadderB1);
  EXPECT_EQ(r.far_other, 0);
  EXPECT_EQ(r.a + r.b + r.other, kCube / kernel::kLadderB1 + 2 * kCube);
}

TEST(DotReads, RegisterTilesReadL1AFractionAsOften) {
  const auto r = count("dot_register_tiled");
  EXPECT_EQ(r.a + r.b, kCube / kernel::kLadderV1 + kCube / 16);
  EXPECT_EQ(r.other, 0);
  EXPECT_EQ(r.far_a + r.far_b, kSquare + kCube / kernel::kLadderB1);
}

TEST(DotReads, PanelsCostOnePassOverB) {
  Tuning t;
  t.knob[kernel::kDotTaskM] = 24, t.knob[kernel::kDotTaskN] = kN, t.knob[kernel::kDotBlockK] = kN;
  const auto r = count("dot_packed", t);
  EXPECT_EQ(r.a, kCube / 16);
  EXPECT_EQ(r.b, kSquare);
  EXPECT_EQ(r.other, kCube / 6);
  EXPECT_EQ(r.far_a + r.far_b + r.far_other, 2 * kSquare + kCube / 24);
}

TEST(DotReads, ASmallerCacheIsSeen) {
  bool is_equal;
  const auto r = kernel::count_reads("dot_cache_tiled", kN, kN, kN, 2000, {}, &is_equal);
  EXPECT_GT(r.far_a + r.far_b, kSquare + kCube / kernel::kLadderB1);
}

}  // namespace
}  // namespace tegula
