// dQ summed over the keys in a fixed order, by the blocks that make dK and dV: the same bits in
// every run.
//
// Units of keys add to a tile of dQ one after the other, the first of them writes it, and the last
// writes the result instead; so the sums need no zeroes before, and no kernel after. Both ends of
// the range of tiles that a unit touches rise with the unit: the units of a tile are a run of
// units, and a unit knows from its two neighbours which tiles it is the first or the last for.
// `order` counts for each tile the units up to the one that added last. Two threads of the
// producer's warpgroup mind it: one asks for each tile's turn ahead of the step that makes it, the
// other tells the next unit when the additions are done, so that the warps that multiply wait for
// a barrier in shared memory, if at all.
//
// A unit waits for units of lower index only, and blocks take their index from a counter when they
// start: so whatever a block waits for has started before it.
#pragma once

#include "tegula/kernels/cuda/attention_bwd_tiles.cuh"

namespace tegula::cuda {

__device__ inline u32 load_acquire(const u32* from) {
  u32 x;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(from) : "memory");
  return x;
}
// After all that this thread has seen happen.
__device__ inline void store_release(u32* to, u32 x) {
  asm volatile("fence.acq_rel.gpu;\nst.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(x)
               : "memory");
}
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

// What to do with this unit's part of a tile of dQ.
enum : u32 { kAddsDq = 0, kBeginsDq = 1, kEndsDq = 2, kHasNoDq = 4 };

// For each tile of dQ on its way: `turn` when what[] may be done, `added` when it has been, `told`
// when the next unit knows.
template <int kPlaces>
struct DqTurns {
  Barrier *turn, *added, *told;  // [kPlaces]
  u32* what;                     // [kPlaces]
  float* sum;                    // of the tile that ends: what the units before have added
  Barrier* sum_full;

  __device__ void init(u32 n_warps) const {
    barrier_init(sum_full, 1);
    for (int i = 0; i < kPlaces; ++i)
      barrier_init(turn + i, 1), barrier_init(told + i, 1),
          barrier_init(added + i, n_warps * kArrivals);
  }
};

// Of a unit's tiles [first_m, end_m): the unit before also adds to those below `before_end`, and
// the unit after to those from `after_first` on.
struct DqNeighbours {
  int before = -1, before_end = -1, after_first = 0x7FFFFFFF;

  template <int kKeys>
  __device__ DqNeighbours(const AttentionBwdParams& p, const KeyUnit<kKeys>& t) {
    for (int u = t.unit - 1; u >= 0 && before < 0; --u) {
      const KeyUnit<kKeys> other(p, Place(u, t.head, t.batch));
      if (other.slot != t.slot) break;  // another sequence
      if (other.end_m > other.first_m) before = u, before_end = other.end_m;
    }
    for (int u = t.unit + 1; u < p.n_units_k; ++u) {
      const KeyUnit<kKeys> other(p, Place(u, t.head, t.batch));
      if (other.slot != t.slot) break;
      if (other.end_m > other.first_m) {
        after_first = other.first_m;
        break;
      }
    }
  }
};

// By one thread: asks for the turn of the tile of each step but the first, which has none, one step
// later; and brings the sum of a tile that ends.
template <int kPlaces, int kKeys>
__device__ inline void ask_for_turns(const AttentionBwdParams& p, const DqTurns<kPlaces>& turns,
                                     const KeyUnit<kKeys>& t) {
  const DqNeighbours near(p, t);
  Ring<kPlaces> ring;
  const auto pass = [&](u32 what) {
    barrier_wait(turns.told + ring.slot, ring.parity ^ 1);
    turns.what[ring.slot] = what;
    barrier_arrive(turns.turn + ring.slot);
    ring.advance();
  };
  pass(kHasNoDq);
  u32 n_sums = 0;
  for (int head = t.head * p.group; head < (t.head + 1) * p.group; ++head)
    for (int m = t.end_m - 1; m >= t.first_m; --m) {
      const bool begins = m >= near.before_end, ends = m < near.after_first;
      const long long tile = t.dq_tile(p, head, m);
      if (!begins) {
        while (load_acquire(p.order + tile) != u32(near.before) + 1) {
        }
        if (ends) {
          const u32 slot = ring.slot == 0 ? kPlaces - 1 : ring.slot - 1;
          // The sum before this one has been read.
          if (n_sums > 0)
            barrier_wait(turns.told + slot, ring.slot == 0 ? ring.parity ^ 1 : ring.parity);
          asm volatile("fence.proxy.async;" ::: "memory");
          barrier_arrive_expect(turns.sum_full, kTile * kD * 4);
          bulk_load(turns.sum, p.dq_sum + tile * (kTile * kD), kTile * kD * 4, turns.sum_full);
          barrier_wait(turns.sum_full, n_sums++ & 1);
        }
      }
      pass((begins ? kBeginsDq : 0) | (ends ? kEndsDq : 0));
    }
}

// By one thread: tells the next unit.
template <int kPlaces, int kKeys>
__device__ inline void tell_turns(const AttentionBwdParams& p, const DqTurns<kPlaces>& turns,
                                  const KeyUnit<kKeys>& t) {
  Ring<kPlaces> ring;
  const auto pass = [&](int head, int m) {
    barrier_wait(turns.added + ring.slot, ring.parity);
    if ((turns.what[ring.slot] & (kEndsDq | kHasNoDq)) == 0)
      store_release(p.order + t.dq_tile(p, head, m), u32(t.unit) + 1);
    barrier_arrive(turns.told + ring.slot);
    ring.advance();
  };
  pass(0, 0);
  for (int head = t.head * p.group; head < (t.head + 1) * p.group; ++head)
    for (int m = t.end_m - 1; m >= t.first_m; --m) pass(head, m);
}

}  // namespace tegula::cuda
