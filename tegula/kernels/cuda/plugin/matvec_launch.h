// Products of few rows as a launch, which takes in others, and what of them a persistent kernel
// needs.
#pragma once

#include <optional>

#include "tegula/kernels/cuda/matvec_params.h"
#include "tegula/kernels/cuda/plugin/tile_launch.h"

namespace tegula::cuda {

// The part that a block makes of c.
struct MatvecTile {
  int64_t rows, columns;
  bool is_mn_major = false;
};

class MatvecLaunch final : public JoinableLaunch {
 public:
  MatvecLaunch(const JoinableKernel& kernel, const MatvecParams& p, const MatvecTile& tile,
               int64_t n_blocks, std::vector<std::string> defines, DType in, DType out,
               int64_t n_shards, const Target& target);

  Status settle(std::span<const MemoryRange> constant) override;
  Result<bool> begin_with(const Prepared& before) override;
  Result<bool> end_with(const Prepared& after) override;

  std::vector<MatvecParams> calls() const;
  DType in() const { return in_; }
  DType out() const { return out_; }
  int64_t n_shards() const { return n_shards_; }
  bool is_mn_major() const { return tile_.is_mn_major; }
  // The launch as what blocks of so many threads do first, to have a; or with what they have made
  // of c. None: it cannot be that.
  std::optional<TilePart> beginning(const TileLaunch& first, int n_threads) const;
  std::optional<TilePart> end(const TileLaunch& last) const;

 private:
  void pass_over(std::vector<MatvecParams>& own);
  bool pays(const TileLaunch& first) const;
  Status make_with_programs();
  size_t output_read(const TileLaunch& first) const;
  int64_t ended_blocks() const;
  bool may_end() const;
  bool gives(const TileLaunch& last, TilePart& part) const;
  int64_t prologue_bytes() const;
  int64_t own_bytes() const;

  const MatvecTile tile_;
  const DType in_, out_;
  const int64_t n_shards_;
  const std::vector<std::string> defines_;
  const Target& target_;
  TilePart first_, last_;
};

}  // namespace tegula::cuda
