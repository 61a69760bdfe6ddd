#include "tegula/base/block_format.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "tegula/base/half.h"

namespace tegula {
namespace {

struct Golden {
  BlockFormat format;
  const char* name;
  uint64_t hash;     // FNV-1a over the bits of 1,024 values
  float one, other;  // values 1 and 300, of blocks of 32 the value 257 from the end
  std::vector<int> halves;
};
// By the Python package gguf (0.19), of the bytes that random_blocks makes.
const Golden kGolden[] = {
    {BlockFormat::kQ8_0, "Q8_0", 0x74d67485f9659225u, 9.797607421875f, 0.0f, {0}},
    {BlockFormat::kQ4_0, "Q4_0", 0xea7a343109d31b25u, -0.599853515625f, -0.0f, {0}},
    {BlockFormat::kQ4_1, "Q4_1", 0xb3fe59ddfe67f3f7u, -0.1605224609375f, 0.0999755859375f, {0, 2}},
    {BlockFormat::kQ5_0, "Q5_0", 0x225d0786548ae125u, -1.599609375f, 0.0f, {0}},
    {BlockFormat::kQ5_1, "Q5_1", 0x1756541618c9e05cu, 1.6390380859375f, 0.0999755859375f, {0, 2}},
    {BlockFormat::kQ2_K,
     "Q2_K",
     0x68564bf56b7f45b2u,
     3.362548828125f,
     -4.815678119659424f,
     {80, 82}},
    {BlockFormat::kQ3_K, "Q3_K", 0x222fdb2e36a9ad25u, 7.59814453125f, -0.0f, {108}},
    {BlockFormat::kQ4_K, "Q4_K", 0xa216b2e3a757f4b9u, 5.73095703125f, -62.9248161315918f, {0, 2}},
    {BlockFormat::kQ5_K, "Q5_K", 0x1795586290a9c862u, 18.927734375f, -173.84585571289062f, {0, 2}},
    {BlockFormat::kQ6_K, "Q6_K", 0xbd8928833f8ffcc1u, -223.1455078125f, 125.20751953125f, {208}},
    {BlockFormat::kIQ4_NL, "IQ4_NL", 0x3493acd89b13ba25u, -8.2979736328125f, -0.0f, {0}},
    {BlockFormat::kIQ4_XS,
     "IQ4_XS",
     0xe3a5283fb5cf092du,
     41.4898681640625f,
     100.0054931640625f,
     {0}}};

// 1,024 values of random bytes; scales are normal, negative, subnormal and zero in turns.
std::vector<uint8_t> random_blocks(const Golden& g) {
  const BlockLayout& layout = layout_of(g.format);
  std::vector<uint8_t> bytes;
  uint64_t state = 1;
  for (int r = 0; r < 1024 / layout.n_values; ++r) {
    for (int c = 0; c < layout.n_bytes; ++c) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      bytes.push_back(static_cast<uint8_t>(state >> 56));
    }
    constexpr uint16_t kHalves[] = {0x2e66, 0xb123, 0x0007, 0x0000};
    for (size_t k = 0; k < g.halves.size(); ++k)
      std::memcpy(bytes.data() + r * layout.n_bytes + g.halves[k],
                  &kHalves[(static_cast<size_t>(r) + k) % 4], 2);
  }
  return bytes;
}

TEST(BlockFormatTest, ValuesAreThoseOfTheReferenceBitForBit) {
  ASSERT_EQ(std::size(kGolden), static_cast<size_t>(kBlockFormats));
  for (const Golden& g : kGolden) {
    const auto bytes = random_blocks(g);
    std::vector<float> w(1024);
    dequantise_blocks(g.format, bytes.data(), 1024, w.data());
    uint64_t hash = 0xcbf29ce484222325u;
    for (const float x : w) hash = (hash ^ std::bit_cast<uint32_t>(x)) * 0x100000001b3u;
    EXPECT_EQ(hash, g.hash) << g.name;
    const float other = w[layout_of(g.format).n_values == 32 ? 1024 - 257 : 300];
    EXPECT_EQ(w[1], g.one) << g.name;
    EXPECT_EQ(std::bit_cast<uint32_t>(other), std::bit_cast<uint32_t>(g.other)) << g.name;
  }
}

TEST(BlockFormatTest, UnpackedPartsMakeTheValues) {
  for (const Golden& g : kGolden) {
    const BlockLayout& layout = layout_of(g.format);
    const auto bytes = random_blocks(g);
    BlockValues values;
    std::memset(&values, 0x55, sizeof values);  // what was there before does not count
    unpack_block(g.format, bytes.data(), values);
    std::vector<float> w(256);
    dequantise_blocks(g.format, bytes.data(), layout.n_values, w.data());
    for (int i = 0; i < layout.n_values; ++i) {
      const int group = i / layout.n_group;
      const float product = values.scale[group] * static_cast<float>(values.q[i]);
      EXPECT_EQ(product + values.min[group], w[static_cast<size_t>(i)]) << g.name << " " << i;
    }
    for (int i = 0; !layout.has_min && i < layout.n_values / layout.n_group; ++i)
      EXPECT_EQ(values.min[i], 0) << g.name;
  }
}

// One bit of a block changes one value, or a group's, and every bit counts.
TEST(BlockFormatTest, EveryBitOfABlockCounts) {
  for (const Golden& g : kGolden) {
    const BlockLayout& layout = layout_of(g.format);
    std::vector<uint8_t> block(static_cast<size_t>(layout.n_bytes), 0x55);
    const uint16_t half = f16(0.75F).bits;
    for (const int at : g.halves) std::memcpy(block.data() + at, &half, 2);
    const auto n = static_cast<size_t>(layout.n_values);
    std::vector<float> before(n), after(n);
    dequantise_blocks(g.format, block.data(), layout.n_values, before.data());
    for (size_t bit = 0; bit < block.size() * 8; ++bit) {
      block[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
      dequantise_blocks(g.format, block.data(), layout.n_values, after.data());
      block[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
      int n_changed = 0;
      for (size_t i = 0; i < n; ++i) n_changed += before[i] != after[i];
      EXPECT_GE(n_changed, 1) << g.name << " bit " << bit;
      EXPECT_TRUE(n_changed <= layout.n_group || n_changed > layout.n_values / 2)
          << g.name << " bit " << bit << " changed " << n_changed;
    }
  }
}

TEST(BlockFormatTest, LayoutsAndNames) {
  for (const Golden& g : kGolden) {
    EXPECT_EQ(layout_of(g.format).name, g.name);
    BlockFormat found{};
    EXPECT_TRUE(find_block_format(g.name, found));
    EXPECT_EQ(found, g.format);
    EXPECT_LE(layout_of(g.format).n_values, kMostBlockValues);
    EXPECT_LE(layout_of(g.format).n_values / layout_of(g.format).n_group, kMostBlockGroups);
  }
  BlockFormat found{};
  for (const char* other : {"", "Q4_k", "Q1_0", "F16"})
    EXPECT_FALSE(find_block_format(other, found)) << other;
}

}  // namespace
}  // namespace tegula
