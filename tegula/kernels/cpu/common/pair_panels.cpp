#include "tegula/kernels/cpu/common/pair_panels.h"

#include <atomic>
#include <thread>

namespace tegula::kernel {

namespace {
constexpr int kSpins = 100;

using State = std::atomic_ref<int32_t>;

template <class F>
void wait(const F& is_over) {
  for (int spin = 0; !is_over(); ++spin)
    if (spin > kSpins) std::this_thread::yield();
}
}  // namespace

PairPanels::PairPanels(int32_t* states, int64_t pairs, int64_t blocks, int64_t slots, int n_threads)
    : states_(states),
      is_taken_(states + kInts * pairs),
      blocks_(blocks),
      slots_(slots),
      n_threads_(n_threads) {
  for (int64_t p = 0; p < pairs; ++p)
    for (int what = 0; what < kInts; ++what)
      State(states_[kInts * p + what]).store(what == kSlot ? -1 : 0, std::memory_order_relaxed);
  for (int64_t s = 0; s < slots; ++s) State(is_taken_[s]).store(0, std::memory_order_relaxed);
}

int64_t PairPanels::enter(int64_t pair, int thread, Pack pack, const void* fn) const {
  const auto all = static_cast<int32_t>(blocks_);
  int32_t* of_pair = states_ + kInts * pair;
  const State packed(of_pair[kPacked]), slot(of_pair[kSlot]), next(of_pair[kNext]);
  if (packed.load(std::memory_order_acquire) < all) {
    int32_t block = next.fetch_add(1, std::memory_order_relaxed);
    if (block == 0) slot.store(take(thread), std::memory_order_release);
    if (block < all) wait([&] { return slot.load(std::memory_order_acquire) >= 0; });
    while (block < all) {
      pack(fn, block, slot.load(std::memory_order_relaxed));
      packed.fetch_add(1, std::memory_order_acq_rel);
      block = next.fetch_add(1, std::memory_order_relaxed);
    }
    wait([&] { return packed.load(std::memory_order_acquire) >= all; });
  }
  return slot.load(std::memory_order_relaxed);
}

void PairPanels::leave(int64_t pair, int64_t tasks) const {
  int32_t* of_pair = states_ + kInts * pair;
  if (State(of_pair[kDone]).fetch_add(1, std::memory_order_acq_rel) + 1 == tasks)
    State(is_taken_[State(of_pair[kSlot]).load(std::memory_order_relaxed)])
        .store(0, std::memory_order_release);
}

bool PairPanels::has_begun(int64_t pair) const {
  return State(states_[kInts * pair + kNext]).load(std::memory_order_relaxed) > 0;
}

// A thread's own slots first.
int32_t PairPanels::take(int thread) const {
  for (int64_t slot = slots_ * thread / n_threads_;; slot = slot + 1 < slots_ ? slot + 1 : 0) {
    const State taken(is_taken_[slot]);
    if (taken.load(std::memory_order_relaxed) == 0 &&
        taken.exchange(1, std::memory_order_acquire) == 0)
      return static_cast<int32_t>(slot);
  }
}

}  // namespace tegula::kernel
