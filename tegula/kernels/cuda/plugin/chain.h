// Launches in a row as steps of a persistent kernel, as it grows.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tegula/kernels/cuda/attention_decode.h"
#include "tegula/kernels/cuda/attention_params.h"
#include "tegula/kernels/cuda/driver.h"
#include "tegula/kernels/cuda/persistent_params.h"
#include "tegula/kernels/cuda/persistent_text.h"
#include "tegula/kernels/device.h"

namespace tegula::cuda {

class DecodeLaunch;
class MatvecLaunch;
class PutLaunch;
class TileLaunch;

class Chain {
 public:
  // A chain of products of at most so many rows.
  Chain(std::span<const WorkInOrder> work, std::span<const MemoryRange> constant,
        const Target& target, int most_rows)
      : work_(work), constant_(constant), target_(&target), most_rows_(most_rows) {}

  // Takes work[i], and maybe some after it; how much. 0: it cannot be part of this.
  size_t take(size_t i);
  // Whether it is worth while: products, and enough steps.
  bool is_long() const { return steps_.size() >= kFewestSteps && !products_.empty(); }
  bool attends() const { return attention_.has_value(); }
  // Its kernel, compiled and loaded, of work[first, first + n). Null: there is no room for it.
  Result<std::unique_ptr<Prepared>> make(size_t first, size_t n) const;

 private:
  static constexpr size_t kFewestSteps = 4;
  // For a and parts; more where a step needs more.
  static constexpr int64_t kLeastScratch_bytes = 24 << 10;
  struct Step {
    PersistentStep head;  // waits: whether
    std::vector<uint64_t> words;
    size_t work = 0;                      // most of what it does
    int64_t a_bytes = 0, unit_bytes = 0;  // of products: of a, of the parts of a unit
  };
  // Bytes of shared memory; and stages of the ring.
  struct Sizes {
    int64_t record = 0, scratch = 0, stages = 0, lent = 0, smem = 0;
  };

  std::optional<TilePart> beginning(size_t i, const TileLaunch& program,
                                    const MatvecLaunch& next) const;
  bool fits(const MatvecLaunch& launch) const;
  size_t take_products(size_t begin, size_t at, const MatvecLaunch& launch, TilePart first);
  bool add_elements(Step step, const TileLaunch& launch);
  static std::vector<RowsParams> equal_rows(const PutLaunch& launch);
  bool add_rows(Step step, const std::vector<RowsParams>& rows);
  bool add_put(Step step, const PutLaunch& launch);
  bool add_small(size_t i, Step step);
  bool add_attention(Step step, const DecodeLaunch& launch);
  AttentionLookUp look_up(AttentionDecodeParams of, const Grid& grid);
  size_t take_small(size_t i);
  bool may_be_repeated(size_t begin, size_t end) const;
  size_t take_repeated(size_t begin, size_t end, const DecodeLaunch& attention);
  Step new_step(size_t begin, size_t end);
  int next_block(int64_t n);
  void add(Step step, PersistentFunction f);
  std::optional<Sizes> sizes() const;
  Result<FunctionHandle> load(const Sizes& z) const;

  std::span<const WorkInOrder> work_;
  std::span<const MemoryRange> constant_;
  const Target* target_;
  int most_rows_;
  std::vector<PersistentFunction> functions_;
  std::map<std::string, size_t> numbers_;
  std::vector<Step> steps_;
  std::vector<PersistentProduct> products_;
  Touched since_;  // blocks last waited for one another
  int next_block_ = 0;
  int rows_ = 0;
  bool is_f16_ = false;
  std::optional<DecodeVariant> attention_;
  // The first attention's, for later ones: parameters without pointers to its own, and its grid.
  std::optional<std::pair<AttentionDecodeParams, std::array<int64_t, 3>>> looked_up_;
  std::vector<size_t> workspaces_;  // steps of attention
  int64_t workspace_bytes_ = 0;
  std::vector<std::string> put_defines_;
  std::set<int64_t> fixed_bytes_;  // static memory of beginnings: those of one size share it
  int n_attending_ = 0;            // blocks
};

}  // namespace tegula::cuda
