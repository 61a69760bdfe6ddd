// dQ summed over the keys in a fixed order, by the blocks that make dK and dV: the same bits in
// every run.
//
// Units of keys add to a tile of dQ one after the other, the first of them writes it, and the last
// writes the result instead; so the sums need no zeroes before, and no kernel after. Both ends of
// the range of tiles that a unit touches rise with the unit: the units of a tile are a run of
// units, and a unit knows from its two neighbours which tiles it is the first or the last for.
// Under a causal mask units go through their tiles from the first up, and the last unit starts:
// then each is a unit's width ahead of the next, and hardly any ever waits. The longest units
// would be last, though; so in the last section of heads the order is the other way round.
// `order` counts for each tile the units up to the one that added last. Two threads of the
// producer's warpgroup mind it: one asks for each tile's turn ahead of the step that makes it, the
// other tells the next unit when the additions are done, so that the warps that multiply wait for
// a barrier in shared memory, if at all.
//
// A unit waits for units before it only, and blocks take their index from a counter when they
// start: so whatever a block waits for has started before it.
#pragma once

#include "tegula/kernels/cuda/attention_bwd_tiles.cuh"
#include "tegula/kernels/cuda/ptx/order.cuh"

#ifndef TEGULA_ORDERED
#define TEGULA_ORDERED 0
#endif

namespace tegula::cuda {

constexpr bool kOrdered = TEGULA_ORDERED;

// A unit's place in the order, and which way it goes through its tiles.
struct UnitPlace : Place {
  bool rises;
  __device__ UnitPlace(const AttentionBwdParams& p, int index)
      : Place(index, p.n_units_k, p.n_heads_kv, p.batch * p.n_heads_kv, p.heads_per_section,
              p.heads_at_end),
        rises(!kOrdered || !is_at_end) {
    if (kOrdered && rises) unit = p.n_units_k - 1 - unit;
  }
};

// Without branches, which would cost registers: the compiler keeps what is the same in all lanes in
// one place only where it knows that they stay together.
__device__ inline void add_or_set(float* to, const float* x, bool adds, bool sets) {
  asm volatile(
      "{\n.reg .pred p, q;\nsetp.ne.b32 p, %5, 0;\nsetp.ne.b32 q, %6, 0;\n"
      "@p red.global.add.v4.f32 [%0], {%1, %2, %3, %4};\n"
      "@q st.global.v4.f32 [%0], {%1, %2, %3, %4};\n}" ::"l"(to),
      "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]), "r"(u32(adds)), "r"(u32(sets))
      : "memory");
}
// Both elements, or the first.
__device__ inline void store_if(u16* to, u32 packed, bool both, bool first) {
  asm volatile(
      "{\n.reg .pred p, q;\n.reg .b16 l, h;\n"
      "setp.ne.b32 p, %2, 0;\nsetp.ne.b32 q, %3, 0;\nmov.b32 {l, h}, %1;\n"
      "@p st.global.b32 [%0], %1;\n@q st.global.b16 [%0], l;\n}" ::"l"(to),
      "r"(packed), "r"(u32(both)), "r"(u32(first))
      : "memory");
}

// This says what to do with this unit's part of a tile of dQ.
enum : u32 { kAddsDq = 0, kBeginsDq = 1, kEndsDq = 2, kHasNoDq = 4 };
struct DqTurn {
  u32 what;
  int head, m;
};

// For each tile of dQ on its way: `turn` when at[] may be done, `added` when it has been, `told`
// when the next unit knows.
template <int kPlaces>
struct DqTurns {
  Barrier *turn, *added, *told;  // [kPlaces]
  DqTurn* at;                    // [kPlaces]
  float* sum;                    // of the tile that ends: what the units before have added
  Barrier* sum_full;

  __device__ void init(u32 n_warps) const {
    barrier_init(sum_full, 1);
    for (int i = 0; i < kPlaces; ++i)
      barrier_init(turn + i, 1), barrier_init(told + i, 1),
          barrier_init(added + i, n_warps * kArrivals);
  }
};

// A unit's tiles as they pass by, and units one after the other: up or down.
struct DqPass {
  int first, past, next;
  template <int kKeys>
  __device__ DqPass(const KeyUnit<kKeys>& t, bool rises)
      : first(rises ? t.first_m : t.end_m - 1),
        past(rises ? t.end_m : t.first_m - 1),
        next(rises ? 1 : -1) {}
};

// The first `n_begun` of a unit's steps through its tiles begin a tile and those from `ends_from`
// on end one; at the others the unit `before` has added before.
struct DqNeighbours {
  int before = -1, n_begun = 0, ends_from = 0;
  DqNeighbours() = default;

  // The next unit on a side that has tiles of the same sequence; its number, or -1.
  template <int kKeys>
  __device__ static int beside(const AttentionBwdParams& p, const KeyUnit<kKeys>& t, int way,
                               int& first, int& end) {
    for (int u = t.unit + way; u >= 0 && u < p.n_units_k; u += way) {
      const KeyUnit<kKeys> other(p, Place(u, t.head, t.batch));
      if (other.slot != t.slot) break;
      first = other.first_m, end = other.end_m;
      if (end > first) return u;
    }
    first = 0x7FFFFFFF, end = 0;
    return -1;
  }

  template <int kKeys>
  __device__ DqNeighbours(const AttentionBwdParams& p, const KeyUnit<kKeys>& t, bool rises) {
    int first, end, unused;
    const int below = beside(p, t, -1, unused, end), above = beside(p, t, 1, first, unused);
    const int only_below = max(0, min(first, t.end_m) - t.first_m);  // tiles not of the one above
    const int only_above = max(0, t.end_m - max(end, t.first_m));
    const int n = t.end_m - t.first_m;
    before = rises ? above : below;
    n_begun = rises ? only_below : only_above;
    ends_from = n - (rises ? only_above : only_below);
  }
};

// By one thread: asks for the turn of the tile of each step but the first, which has none, one step
// later; and brings the sum of a tile that ends.
template <int kPlaces, int kKeys>
__device__ inline void ask_for_turns(const AttentionBwdParams& p, const DqTurns<kPlaces>& turns,
                                     const KeyUnit<kKeys>& t, const DqPass& tiles) {
  const DqNeighbours near(p, t, tiles.next > 0);
  Ring<kPlaces> ring;
  const auto pass = [&](const DqTurn& turn) {
    barrier_wait(turns.told + ring.slot, ring.parity ^ 1);
    turns.at[ring.slot] = turn;
    barrier_arrive(turns.turn + ring.slot);
    ring.advance();
  };
  pass({kHasNoDq, 0, 0});
  // Bit 0: the parity of `sum_full`. Bit 1: `sum` is read, since what ends a tile reads it even
  // where it has all of the tile. One register of the few that this warpgroup has.
  u32 sums = 0;
  for (int head = t.head * p.group; head < (t.head + 1) * p.group; ++head)
    for (int i = 0; i < t.end_m - t.first_m; ++i) {
      const bool begins = i < near.n_begun, ends = i >= near.ends_from;
      const int m = tiles.first + i * tiles.next;
      const long long tile = t.dq_tile(p, head, m);
      if (!begins) {
        while (load_acquire(p.order + tile) != u32(near.before) + 1) {
        }
        if (ends) {
          const u32 slot = ring.slot == 0 ? kPlaces - 1 : ring.slot - 1;
          if (sums & 2)  // no longer read
            barrier_wait(turns.told + slot, ring.slot == 0 ? ring.parity ^ 1 : ring.parity);
          asm volatile("fence.proxy.async;" ::: "memory");
          barrier_arrive_expect(turns.sum_full, kTile * kD * 4);
          bulk_load(turns.sum, p.dq_sum + tile * (kTile * kD), kTile * kD * 4, turns.sum_full);
          barrier_wait(turns.sum_full, sums & 1);
          sums ^= 1;
        }
      }
      pass({(begins ? kBeginsDq : 0) | (ends ? kEndsDq : 0), head, m});
      sums |= ends ? 2 : 0;
    }
}

// By one thread: tells the next unit.
template <int kPlaces, int kKeys>
__device__ inline void tell_turns(const AttentionBwdParams& p, const DqTurns<kPlaces>& turns,
                                  const KeyUnit<kKeys>& t, const DqPass& tiles) {
  Ring<kPlaces> ring;
  const auto pass = [&](int head, int m) {
    barrier_wait(turns.added + ring.slot, ring.parity);
    if ((turns.at[ring.slot].what & (kEndsDq | kHasNoDq)) == 0)
      store_release(p.order + t.dq_tile(p, head, m), u32(t.unit) + 1);
    barrier_arrive(turns.told + ring.slot);
    ring.advance();
  };
  pass(0, 0);
  for (int head = t.head * p.group; head < (t.head + 1) * p.group; ++head)
    for (int m = tiles.first; m != tiles.past; m += tiles.next) pass(head, m);
}

}  // namespace tegula::cuda
