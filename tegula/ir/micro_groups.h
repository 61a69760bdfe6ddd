// MicroGroups: in which order a step sums the gradients of its micro-batches (Mode::kExact), so
// that ranks that share these out give the bits of one.
//
// n micro-batches form 8, 4 or 2 groups of consecutive ones, whichever divides n (else one). Each
// group's sum is a chain that begins at zero; these are added in a binary tree over neighbours. So
// one of 2, 4 or 8 ranks that takes whole groups has a subtree, and so has each half of them.
//
// One rank keeps the sums of finished groups on a stack, as a binary counter keeps its digits:
//
//   for m in 0..n:  stack[slot_of(m)] += gradient of m
//                   joins_after(m) times: the two upper sums are added, and the upper slot is zero
//
// After the last micro-batch slot 0 has the whole sum.
#pragma once

#include <bit>
#include <string>
#include <string_view>

#include "tegula/ir/sum_shards.h"

namespace tegula {

struct MicroGroups {
  int64_t n = 1, groups = 1;

  static MicroGroups of(int64_t n) { return {n, shards_of(n)}; }
  static MicroGroups chain(int64_t n) { return {n, 1}; }
  // Those of one of `ranks`, which divide the groups: rank d has micro-batches d n / ranks and on.
  MicroGroups share(int64_t ranks) const { return {n / ranks, groups / ranks}; }

  int64_t size() const { return n / groups; }  // of a group
  int64_t group_of(int64_t m) const { return m / size(); }
  int64_t slot_of(int64_t m) const { return std::popcount(static_cast<uint64_t>(group_of(m))); }
  int64_t joins_after(int64_t m) const {
    return (m + 1) % size() != 0 ? 0 : std::countr_one(static_cast<uint64_t>(group_of(m)));
  }
  int64_t n_slots() const { return std::bit_width(static_cast<uint64_t>(groups)); }
};

// Sums of gradients are state, one of each slot: names of a step's results that hold the gradients
// ("grad.w"), of the next slot's, for whoever adds two, and of slots behind the first.
inline constexpr std::string_view kSumOfGradients = "grad.", kNextSum = "next.grad.",
                                  kPendingSum = "pending.";
// "grad.w", "next.grad.w", "pending.1.grad.w"
bool is_sum_of_gradients(std::string_view name);
// The store's name of a parameter of micro_step or join that runs on a slot of the stack. Sums of
// slot 0, which the update reads, and whatever is no sum, have their own names.
std::string name_at_slot(std::string_view param, int64_t slot);

}  // namespace tegula
