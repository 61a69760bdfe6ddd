// Calls of one kernel that may become one launch (Prepared::take).
#pragma once

#include <cstring>
#include <numeric>
#include <span>
#include <vector>

#include "tegula/kernels/cuda/plugin/launch.h"

namespace tegula::cuda {

// A kernel in two forms: of one call's parameters and blocks; and of several calls' (joined.cuh).
struct JoinableKernel {
  FunctionHandle one = nullptr, joined = nullptr;
  int n_threads = 0;
  const char* what = nullptr;  // for messages
};

class JoinableLaunch : public PreparedLaunches {
 public:
  // params: of a call as the kernel has them, whole words of 8 bytes.
  JoinableLaunch(const JoinableKernel& kernel, std::vector<uint64_t> params, int64_t n_blocks)
      : kernel_(kernel), n_words_(params.size()), words_(std::move(params)), blocks_{n_blocks} {}
  Status make();

  const void* kind() const override { return kernel_.joined; }
  bool take(const Prepared& other) override;
  bool is_joined() const { return blocks_.size() > 1; }
  size_t n_calls() const { return blocks_.size(); }
  std::span<const uint64_t> call_words(size_t call) const {
    return std::span(words_).subspan(call * n_words_, n_words_);
  }
  int64_t call_blocks(size_t call) const { return blocks_[call]; }

 protected:
  // A Joined of at most so many calls.
  std::vector<uint64_t> joined_words(size_t most) const;
  int64_t n_blocks() const { return std::accumulate(blocks_.begin(), blocks_.end(), int64_t{0}); }

  const JoinableKernel kernel_;
  const size_t n_words_;         // of a call
  std::vector<uint64_t> words_;  // of all calls
  std::vector<int64_t> blocks_;  // of each

 private:
  size_t most() const;
};

// make() of it.
Result<std::unique_ptr<Prepared>> prepare_joinable(std::unique_ptr<JoinableLaunch> launch);

// The words of a struct.
template <class Params>
std::vector<uint64_t> words_of(const Params& p) {
  static_assert(sizeof(Params) % sizeof(uint64_t) == 0);
  std::vector<uint64_t> words(sizeof(Params) / sizeof(uint64_t));
  std::memcpy(words.data(), &p, sizeof(Params));
  return words;
}

}  // namespace tegula::cuda
