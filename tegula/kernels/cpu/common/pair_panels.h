// Packed keys and values of (batch, key head) pairs, in slots, for tasks that read them.
//
// Whoever comes to a pair first takes a slot for it; everybody who comes before all is packed helps
// to pack, and waits at most for blocks that others are at: nobody waits for a thread that has not
// come. The last task gives the slot back, so that its owner packs the next pair where the last one
// lay, in its cache. There are no barriers; who packs a block differs from run to run, what it
// packs does not.
#pragma once

#include <cstdint>

namespace tegula::kernel {

class PairPanels {
 public:
  // Slots that ThreadPool::parallel_for over tasks, pair by pair, never exceeds. A pair that was
  // begun and is not done is one that a thread in some part of the loop came to last (a part is
  // taken in order, and not left before its end), n_threads at most; or it lies across a border of
  // parts, of which those behind or before the border are still to be taken: n_threads - 1.
  static constexpr int64_t most_slots(int64_t n_threads) { return 2 * n_threads - 1; }
  static constexpr int64_t state_ints(int64_t pairs, int64_t n_threads) {
    return kInts * pairs + most_slots(n_threads);
  }

  // `pairs` of some blocks each; most_slots(n_threads) slots, or, where they are fewer, at least
  // one for each pair. To be called while nobody works.
  PairPanels(int32_t* states, int64_t pairs, int64_t blocks, int64_t slots, int n_threads);

  // Returns the pair's slot when all its blocks are packed, some perhaps by pack(block, slot).
  template <class F>
  int64_t enter(int64_t pair, int thread, const F& pack) const {
    return enter(
        pair, thread,
        [](const void* f, int64_t block, int64_t slot) {
          (*static_cast<const F*>(f))(block, slot);
        },
        &pack);
  }
  // A task of the pair is done; `tasks` of them share its slot.
  void leave(int64_t pair, int64_t tasks) const;
  // Whether somebody packs or has packed its blocks.
  bool has_begun(int64_t pair) const;

 private:
  enum { kSlot, kNext, kPacked, kDone, kInts };  // of a pair
  using Pack = void (*)(const void* fn, int64_t block, int64_t slot);

  int64_t enter(int64_t pair, int thread, Pack pack, const void* fn) const;
  int32_t take(int thread) const;

  int32_t *const states_, *const is_taken_;
  const int64_t blocks_, slots_, n_threads_;
};

}  // namespace tegula::kernel
