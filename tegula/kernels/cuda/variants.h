// Which variants exist, from the code that chooses them: what is built into the plug-in, and what a
// check compiles.
#pragma once

#include <string>
#include <vector>

namespace tegula::cuda {

struct KernelVariant {
  std::string name, source;  // "attention_sm90 d128_causal_...", "attention_sm90.cu"
  std::vector<std::string> defines;
  std::string arch;
  int threads = 256;
  int smem_bytes = 0;  // asked for at launch, beside what the source declares
};

// The shared memory that a multiprocessor has for one block.
int smem_limit_bytes(std::string_view arch);
inline constexpr int kRegistersOfBlock = 65536;

// Every pair of values that two options of a kernel can have together occurs in one of them, for
// sm_90a, and for sm_80 where a source allows it. Each once.
std::vector<KernelVariant> covering_variants();

// The common cases on Hopper.
std::vector<KernelVariant> ahead_variants();

// Rows of values, one per option i in [0, n_values[i]), so that every pair of values of two options
// stands in a row that `is_allowed` accepts, if any such row is found. Greedy, the same every time.
std::vector<std::vector<int>> pairwise(const std::vector<int>& n_values,
                                       bool (*is_allowed)(const std::vector<int>&) = nullptr);

}  // namespace tegula::cuda
