// Packed keys and values of (batch, key head) pairs, in slots, for tasks that read them.
//
// Whoever comes to a pair first takes a slot for it; everybody who comes before all is packed helps
// to pack, and waits at most for blocks that others are at: nobody waits for a thread that has not
// come. The last task gives the slot back, so that its owner packs the next pair where the last one
// lay, in its cache. There are no barriers; who packs a block differs from run to run, what it
// packs does not.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

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
  PairPanels(int32_t* states, int64_t pairs, int64_t blocks, int64_t slots, int n_threads)
      : states_(states),
        is_taken_(states + kInts * pairs),
        blocks_(blocks),
        slots_(slots),
        n_threads_(n_threads) {
    for (int64_t p = 0; p < pairs; ++p) {
      at(p, kSlot).store(-1, std::memory_order_relaxed);
      for (const int what : {kNext, kPacked, kDone})
        at(p, what).store(0, std::memory_order_relaxed);
    }
    for (int64_t s = 0; s < slots; ++s) taken(s).store(0, std::memory_order_relaxed);
  }

  // Returns the pair's slot when all its blocks are packed, some perhaps by pack(block, slot).
  template <class F>
  int64_t enter(int64_t pair, int thread, const F& pack) const {
    const auto all = static_cast<int32_t>(blocks_);
    auto packed = at(pair, kPacked), slot = at(pair, kSlot);
    if (packed.load(std::memory_order_acquire) < all) {
      int32_t block = at(pair, kNext).fetch_add(1, std::memory_order_relaxed);
      if (block == 0) slot.store(take(thread), std::memory_order_release);
      if (block < all) wait([&] { return slot.load(std::memory_order_acquire) >= 0; });
      while (block < all) {
        pack(block, slot.load(std::memory_order_relaxed));
        packed.fetch_add(1, std::memory_order_acq_rel);
        block = at(pair, kNext).fetch_add(1, std::memory_order_relaxed);
      }
      wait([&] { return packed.load(std::memory_order_acquire) >= all; });
    }
    return slot.load(std::memory_order_relaxed);
  }
  // A task of the pair is done; `tasks` of them share its slot.
  void leave(int64_t pair, int64_t tasks) const {
    if (at(pair, kDone).fetch_add(1, std::memory_order_acq_rel) + 1 == tasks)
      taken(at(pair, kSlot).load(std::memory_order_relaxed)).store(0, std::memory_order_release);
  }
  // Whether somebody packs or has packed its blocks.
  bool has_begun(int64_t pair) const { return at(pair, kNext).load(std::memory_order_relaxed) > 0; }

 private:
  enum { kSlot, kNext, kPacked, kDone, kInts };  // of a pair
  static constexpr int kSpins = 100;

  std::atomic_ref<int32_t> at(int64_t pair, int what) const {
    return std::atomic_ref<int32_t>(states_[kInts * pair + what]);
  }
  std::atomic_ref<int32_t> taken(int64_t slot) const {
    return std::atomic_ref<int32_t>(is_taken_[slot]);
  }
  // A thread's own slots first.
  int32_t take(int thread) const {
    for (int64_t slot = slots_ * thread / n_threads_;; slot = slot + 1 < slots_ ? slot + 1 : 0)
      if (taken(slot).load(std::memory_order_relaxed) == 0 &&
          taken(slot).exchange(1, std::memory_order_acquire) == 0)
        return static_cast<int32_t>(slot);
  }
  template <class F>
  static void wait(const F& is_over) {
    for (int spin = 0; !is_over(); ++spin)
      if (spin > kSpins) std::this_thread::yield();
  }

  int32_t *const states_, *const is_taken_;
  const int64_t blocks_, slots_, n_threads_;
};

}  // namespace tegula::kernel
