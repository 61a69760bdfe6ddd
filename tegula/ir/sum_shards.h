// SumShards: in how many shards a node sums, so that ranks that share them give the bits of one.
//
// The attribute `sum_shards`, which every op may have, is a list {outer} or {outer, inner}: equal
// consecutive shards of the factor of dim 0 of operand 0 (the batch), and within each of these of
// the factor of dim 1 (the sequence). What a node with them gives is
//
//   Σ_p Σ_q op(cell p, q)      both in a binary tree over neighbours, wide, rounded once
//
// inner sums first (passes/sum_shards.h). `dot` has an attribute of its own besides, `k_shards`:
// equal consecutive shards of all that it contracts, flattened; its kernels sum these in one
// launch.
#pragma once

#include <numeric>

#include "tegula/base/attrs.h"

namespace tegula {

inline constexpr std::string_view kSumShards = "sum_shards";

inline constexpr int64_t kMostShards = 8;       // of a factor
inline constexpr int64_t kLeastSummed = 512;    // by a contraction whose k has shards of its own
inline constexpr int64_t kLeastSequence = 256;  // tokens that have shards

// The shards of a factor: 8, 4 or 2, whichever divides it; 1: none.
inline int64_t shards_of(int64_t extent) { return std::gcd(extent, kMostShards); }
// The shards of a sequence: none below kLeastSequence.
inline int64_t shards_of_sequence(int64_t extent) {
  return extent < kLeastSequence ? 1 : shards_of(extent);
}

struct SumShards {
  int64_t outer = 1, inner = 1;

  static SumShards of(const Attrs& attrs) {
    const AttrValue* v = attrs.find(kSumShards);
    if (v == nullptr) return {};
    const auto& list = v->get<std::vector<int64_t>>();
    return {list[0], list.size() > 1 ? list[1] : 1};
  }
  bool any() const { return outer > 1 || inner > 1; }
  void put(Attrs& attrs) const {
    if (!any()) return attrs.erase(kSumShards);
    attrs.set(kSumShards,
              inner > 1 ? std::vector<int64_t>{outer, inner} : std::vector<int64_t>{outer});
  }
  friend bool operator==(const SumShards&, const SumShards&) = default;
};

}  // namespace tegula
