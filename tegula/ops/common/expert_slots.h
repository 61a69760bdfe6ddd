// Shared by the expert ops. A slot is the row e cap + p of a shard's buckets laid one after
// another.
#pragma once

#include "tegula/ops/common/rows.h"
#include "tegula/ops/expert.h"
#include "tegula/ops/indexing.h"

namespace tegula {

inline constexpr std::string_view kChoicesDecide = "dropped choices move and add nothing";

// The place of choice (t, j) of a shard among its buckets [n_experts, capacity]; -1: none.
struct Slot {
  int64_t expert = -1, position = -1;
  bool is_valid(int64_t n_experts, int64_t capacity) const {
    return expert >= 0 && expert < n_experts && position >= 0 && position < capacity;
  }
};

// In nodes: slots [s, t, k] of i32; -1 where a choice has none.
Var slots_of(Var experts, Var positions, Dim n_experts, Dim capacity);
// Buckets [e, s, cap, d] as each shard's rows [s, e cap, d], and back.
Var shards_first(Var buckets);
Var experts_first(Var rows, Dim n_experts, Dim capacity);
Var extent_of(Builder& b, Dim size, DType dtype);

// The dims of expert_combine and its gradient; experts select e, positions select cap.
Result<DimMap> combine_dims(const OpCall& c, std::string_view spec);
// Bytes of the rows of y that t k distinct choices read.
int64_t chosen_bytes(const OpCall& c);

}  // namespace tegula
