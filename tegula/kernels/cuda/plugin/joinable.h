// Calls of one kernel that may become one launch (Prepared::take).
#pragma once

#include <cstring>
#include <vector>

#include "tegula/kernels/cuda/plugin/launch.h"

namespace tegula::cuda {

// A kernel in two forms: of one call's parameters and blocks; and of several calls' (joined.cuh).
struct JoinableKernel {
  FunctionHandle one = nullptr, joined = nullptr;
  int n_threads = 0;
  const char* what = nullptr;  // for messages
};

// A launch made ready. params: its parameters as the kernel has them, whole words of 8 bytes.
Result<std::unique_ptr<Prepared>> prepare_joinable(const JoinableKernel& kernel,
                                                   std::vector<uint64_t> params, int64_t n_blocks);

// The words of a struct.
template <class Params>
std::vector<uint64_t> words_of(const Params& p) {
  static_assert(sizeof(Params) % sizeof(uint64_t) == 0);
  std::vector<uint64_t> words(sizeof(Params) / sizeof(uint64_t));
  std::memcpy(words.data(), &p, sizeof(Params));
  return words;
}

}  // namespace tegula::cuda
