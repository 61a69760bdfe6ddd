// Attention of few queries as a launch, and what of it a persistent kernel needs.
#pragma once

#include <span>
#include <vector>

#include "tegula/kernels/cuda/attention_decode.h"
#include "tegula/kernels/cuda/plugin/launch.h"

namespace tegula::cuda {

class DecodeLaunch final : public PreparedLaunches {
 public:
  // early: lengths and pages.
  DecodeLaunch(const DecodeKernel& kernel, const DecodeVariant& variant, const DecodeCall& call,
               std::span<const TensorRef> early)
      : variant(variant), kernel_(kernel), call_(call), early_(early.begin(), early.end()) {}
  Status make();
  Status settle(std::span<const MemoryRange> constant) override;
  const DecodeVariant variant;
  // Lengths and pages, which are read as what nothing writes.
  std::span<const TensorRef> early() const { return early_; }
  const void* workspace() const { return call_.workspace; }
  int64_t workspace_bytes() const {
    return decode_workspace_bytes(call_.shape, call_.keys_per_split);
  }

 private:
  const DecodeKernel& kernel_;
  DecodeCall call_;
  const std::vector<TensorRef> early_;
};

}  // namespace tegula::cuda
