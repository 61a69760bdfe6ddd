// SumBuckets: sums that pend over ranks and that nobody needs soon, as gradients before the update,
// joined in the background while the backward part goes on.
//
// An all_reduce is its two halves: reduce_scatter, of which each rank keeps a share, and
// all_gather; over several axes the shares are shared out again, innermost axis first, so that
// outer axes see less. Each half is work in the background (plan/plan.h, Step::starts): it is begun
// where a bucket is full, and the next one where the next bucket is; one that is closed before it
// is full, because its layer ends, goes with these. The bits are those of all_reduce, whose tree
// over ranks is the same for every element.
//
// A bucket takes values, side by side, as long as copying them there takes less than the meetings
// that it saves: cost/price.h, α·meetings against the bytes at the target's rate. What is larger
// than that by itself goes alone, uncopied. None holds sums of two layers: so layers stay alike,
// and the timeline of one is that of all (planner/timeline.h). [Li et al. 2020 (PyTorch DDP),
// section 3.2]
#pragma once

#include <map>
#include <optional>

#include "tegula/ir/builder.h"
#include "tegula/ir/sharding.h"
#include "tegula/kernels/target.h"

namespace tegula {

class SumBuckets {
 public:
  SumBuckets(Builder& b, const Mesh& mesh, const Target& target)
      : b_(b), mesh_(mesh), target_(target) {}

  // Value v, of which this rank has the part x; `axes` are those over which it pends, in order.
  void add(ValueId v, Var x, const std::vector<size_t>& axes);
  bool has(ValueId v) const { return places_.count(v) != 0; }
  // The whole sum. All that is under way is brought to its end, half by half.
  Var take(ValueId v);
  // Is this bucket large enough to go by itself?
  bool is_full(int64_t n_bytes, size_t n_axes) const;

 private:
  struct Bucket {
    std::vector<size_t> axes;
    std::string layer;
    std::optional<Origin> origin;  // of what it does, wherever it is carried on
    std::vector<std::pair<ValueId, Var>> values;
    int64_t bytes = 0;
    Var x;              // what the halves done so far have made
    size_t n_done = 0;  // of 2 halves for each axis
    bool is_begun = false;
  };
  struct Place {
    size_t bucket = 0;
    Var whole;
  };
  size_t open_bucket(Var x, const std::vector<size_t>& axes);
  void begin(Bucket& bucket);
  bool advance(Bucket& bucket);
  void carve(const Bucket& bucket);
  // A node that is made while this lives stands where the bucket's values do.
  class There {
   public:
    There(Builder& b, const Bucket& bucket) : b_(b), before_(b.origin()) {
      b.set_origin(bucket.origin);
    }
    ~There() { b_.set_origin(before_); }
    There(const There&) = delete;
    There& operator=(const There&) = delete;

   private:
    Builder& b_;
    const std::optional<Origin> before_;
  };

  Builder& b_;
  const Mesh& mesh_;
  const Target& target_;
  std::vector<Bucket> buckets_;
  std::map<ValueId, Place> places_;
};

}  // namespace tegula
