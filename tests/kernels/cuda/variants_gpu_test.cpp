// The list of variants that a check compiles: it covers pairs, is bounded, and names each once.
#include <gtest/gtest.h>

#include <set>

#include "tegula/base/str.h"
#include "tegula/kernels/cuda/variants.h"

namespace tegula::cuda {
namespace {

using Pair = std::pair<std::pair<size_t, int>, std::pair<size_t, int>>;

std::set<Pair> pairs_of(const std::vector<std::vector<int>>& rows) {
  std::set<Pair> pairs;
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i)
      for (size_t j = i + 1; j < row.size(); ++j) pairs.insert({{i, row[i]}, {j, row[j]}});
  return pairs;
}

TEST(CudaVariants, PairwiseCoversEveryPairInFewRows) {
  const auto rows = pairwise({5, 2, 2, 2, 2, 3});
  size_t n_pairs = 0;
  const int n[] = {5, 2, 2, 2, 2, 3};
  for (int i = 0; i < 6; ++i)
    for (int j = i + 1; j < 6; ++j) n_pairs += static_cast<size_t>(n[i] * n[j]);
  EXPECT_EQ(pairs_of(rows).size(), n_pairs);
  EXPECT_GE(rows.size(), 15U);  // 5 × 3 are needed
  EXPECT_LE(rows.size(), 20U);  // of 240
}

TEST(CudaVariants, PairwiseLeavesOutWhatIsNotAllowed) {
  const auto rows = pairwise({2, 2, 2}, [](const std::vector<int>& r) { return r[0] + r[1] < 2; });
  for (const auto& row : rows) EXPECT_LT(row[0] + row[1], 2);
  EXPECT_EQ(pairs_of(rows).size(), 11U);  // 12 but one
}

TEST(CudaVariants, AreAtMost160EachOnceForBothArchitectures) {
  const auto all = covering_variants();
  EXPECT_LE(all.size(), 160U);
  std::set<std::string> seen, archs;
  for (const KernelVariant& v : all) {
    EXPECT_TRUE(seen.insert(cat(v.arch, v.source, v.defines)).second) << v.name;
    EXPECT_GT(v.threads, 0) << v.name;
    EXPECT_LE(v.smem_bytes, smem_limit_bytes(v.arch)) << v.name;
    archs.insert(v.arch);
  }
  EXPECT_EQ(archs, (std::set<std::string>{"sm_80", "sm_90a"}));
}

TEST(CudaVariants, WhatIsBuiltInIsAlsoChecked) {
  std::set<std::string> checked;
  for (const KernelVariant& v : covering_variants())
    checked.insert(cat(v.arch, v.source, v.defines));
  for (const KernelVariant& v : ahead_variants())
    EXPECT_TRUE(checked.count(cat(v.arch, v.source, v.defines))) << v.name;
}

}  // namespace
}  // namespace tegula::cuda
