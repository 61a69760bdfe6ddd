// Tests what lectures calculate, row by row; and where a printed figure does not follow from its
// own formula, both, never made equal.
#include <gtest/gtest.h>

#include <cmath>

#include "tegula/planner/attention_access.h"
#include "tegula/planner/cluster.h"
#include "tegula/planner/model_presets.h"
#include "tegula/planner/ring.h"

namespace tegula::planner {
namespace {

// "Efficiency": sizes in elements, accesses, two bytes, operations; B heads of N tokens and size D.
TEST(Access, TheTableRowByRow) {
  const double n = 1024, d = 64, b = 12;
  const auto table = access_table(n, d, b);
  const struct {
    const char* what;
    double elements;
    int times;
    double bytes, flops;
  } rows[] = {{"Q, K", 2 * n * d * b, 1, 4 * n * d * b, 0},
              {"Q·Kᵀ", n * n * b, 1, 2 * n * n * b, b * n * d * n * 2},
              {"mask", n * n * b, 2, 4 * n * n * b, b * n * n * 2},
              {"dropout", n * n * b, 2, 4 * n * n * b, b * n * n * 2},
              {"softmax", n * n * b, 2, 4 * n * n * b, b * n * n * 2},
              {"V", n * d * b, 1, 2 * n * d * b, 0},
              {"output", n * d * b, 1, 2 * n * d * b, b * n * n * d * 2}};
  ASSERT_EQ(table.size(), std::size(rows));
  for (size_t i = 0; i < table.size(); ++i) {
    EXPECT_EQ(table[i].what, rows[i].what);
    EXPECT_EQ(table[i].elements, rows[i].elements) << rows[i].what;
    EXPECT_EQ(table[i].times, rows[i].times) << rows[i].what;
    EXPECT_EQ(table[i].bytes, rows[i].bytes) << rows[i].what;
    EXPECT_EQ(table[i].flops, rows[i].flops) << rows[i].what;
  }
}

// The lecture says that the intensity falls with N. By its own table it rises, to (4D + 6)/14.
TEST(Access, IntensityRisesToALimit) {
  double last = 0;
  for (double n = 16; n < 1e6; n *= 2) {
    const double now = total(access_table(n, 64, 1)).intensity();
    EXPECT_GT(now, last);
    EXPECT_LT(now, intensity_limit(64));
    last = now;
  }
  EXPECT_NEAR(last, intensity_limit(64), 1e-3 * last);
  EXPECT_DOUBLE_EQ(intensity_limit(64), 262 / 14.0);
  // So it is bound by memory on an A100 (161) for every N, not from 250 on.
  EXPECT_LT(intensity_limit(64), 161);
}

TEST(Access, FlashAttentionIsQuadraticOverSram) {
  const double d = 64, sram = 192 * 1024;
  const AccessBytes one = access_bytes(16384, d, 1, sram), two = access_bytes(32768, d, 1, sram);
  EXPECT_NEAR(two.flash / one.flash, 4, 0.1);  // N²
  // 3·N²·d²·4/M elements lead it.
  EXPECT_NEAR(two.flash, 2 * 3 * 32768.0 * 32768 * d * 4 * d / (sram / 2), 0.05 * two.flash);
  EXPECT_NEAR(access_bytes(32768, d, 1, 2 * sram).flash / two.flash, 0.5, 0.02);  // 1/M
  EXPECT_NEAR(access_bytes(32768, 2 * d, 1, sram).flash / two.flash, 4, 0.1);     // d²
  for (const AccessBytes& b : {one, two}) {
    EXPECT_LT(b.least, b.flash);
    EXPECT_LT(b.flash, b.tiled);
    EXPECT_LT(b.tiled, b.naive);
  }
}

// Dao et al. 2022, figure 2, printed for GPT-2 medium's attention, forward and backward, on an
// A100: 66.6 and 75.2 GFLOPs, 40.3 and 4.4 GB, 41.7 and 7.3 ms. Its setting is N 1024, d 64, 16
// heads, a batch of 64. What follows from that, and what does not.
TEST(Access, FlashAttentionsPrintedFigures) {
  const double heads = 16 * 64, forward = 4 * 1024.0 * 1024 * 64 * heads;
  const double standard = 3 * forward, flash = 3.5 * forward;
  EXPECT_NEAR(flash / standard, 7.0 / 6, 1e-12);
  EXPECT_NEAR(75.2 / 66.6, 1.129, 1e-3);  // the printed ratio is another
  EXPECT_GT(standard / 66.6e9, 10);       // and so is the size: 824 GFLOPs
  // The printed bytes at the A100's 1.555 TB/s take 26 and 2.8 ms: less than was measured.
  const double rate = find_accelerator("A100-40GB")->memory_bytes_per_s;
  EXPECT_NEAR(40.3e9 / rate * 1e3, 25.9, 0.05);
  EXPECT_NEAR(4.4e9 / rate * 1e3, 2.83, 0.005);
  // Our table, dropout and mask included, has the order of the printed bytes for forward alone.
  EXPECT_NEAR(total(access_table(1024, 64, heads)).bytes / 1e9, 15.6, 0.1);
}

// "20-40 MB of SRAM a multiprocessor" is 192 KB; all 108 of an A100 together have 20.7 MB.
TEST(Access, SramOfAMultiprocessor) {
  const Accelerator a = *find_accelerator("A100-40GB");
  EXPECT_EQ(a.sram_bytes, 192 * 1024);
  EXPECT_NEAR(a.sram_bytes * static_cast<double>(a.multiprocessors) / 1e6, 21.2, 0.05);
  const double printed[][2] = {{500, 0.5}, {1000, 2}, {4000, 32}};  // N, MB of an N × N of 2 bytes
  for (const auto& [n, mb] : printed) EXPECT_EQ(2 * n * n / 1e6, mb);
}

// "Arithmetic intensity": a sum of two is 1 operation and 3 accesses; E = D + (A + B)·C in one loop
// is 3 and 5, in three loops 3 and 9.
TEST(Access, FusedAndUnfusedSums) {
  const auto intensity = [](double flops, double accesses) { return flops / accesses; };
  EXPECT_EQ(intensity(1, 2 + 1), 1.0 / 3);
  EXPECT_EQ(intensity(3, 3 * 3), 1.0 / 3);
  EXPECT_EQ(intensity(3, 4 + 1), 3.0 / 5);
}

TEST(Ring, TheLeastBlock) {
  ModelSpec m = find_model_preset("llama2-7b")->model;  // as many key/value heads as queries
  EXPECT_EQ(least_ring_tokens(m, 312e12, 300e9, 2, false), 1040);
  // Liu et al. 2023, table 2: six blocks, 6.2 thousand tokens on NVLink, 149.5 on InfiniBand; 6.2
  // for TPU v4's 275 TFLOP/s and 268 GB/s.
  EXPECT_NEAR(6 * least_ring_tokens(m, 312e12, 300e9, 2, false), 6.2e3, 50);
  EXPECT_NEAR(6 * least_ring_tokens(m, 312e12, 12.5e9, 2, false), 149.5e3, 300);
  EXPECT_NEAR(6 * least_ring_tokens(m, 275e12, 268e9, 2, false), 6.2e3, 50);
  // By times: at the least block a hop takes as long as the attention over it.
  const double c = least_ring_tokens(m, 1e14, 1e11, 2, false), h = 4096;
  EXPECT_NEAR(2 * c * h * 2 / 1e11, 4 * c * c * h / 1e14, 1e-12);
  m.n_kv_heads = 8;  // of 32
  EXPECT_EQ(least_ring_tokens(m, 312e12, 300e9, 2, false), 260);
  EXPECT_EQ(least_ring_tokens(m, 312e12, 300e9, 2, true), 520);
}

}  // namespace
}  // namespace tegula::planner
