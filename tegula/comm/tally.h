// Tally: where ranks wait for one another, be they threads of one process or of several.
//
// It is a word in memory that all of them see. It begins as zero and holds no pointer, so that
// each process may have that memory at another address. Who waits sleeps on a futex; 20 times a
// second it looks whether somebody has failed, so that nobody waits for one that was killed.
#pragma once

#include <cstdint>

#include "tegula/base/counter.h"

namespace tegula {

// The state of a rank, for whoever watches it.
struct RankState {
  Counter sent_bytes;       // taken from it by others
  uint64_t calls = 0;       // of collectives that it has begun
  uint32_t is_waiting = 0;  // for other ranks
  uint32_t beats = 0;       // how often it has looked in this wait, in vain
  char call[160] = {};      // "all_reduce over dp (step 12 of train_step)"
};

// Somebody who waits: until `failed` is set, and seen in `state` (null: by nobody).
struct Waiter {
  const uint32_t* failed = nullptr;
  RankState* state = nullptr;
};
bool has_failed(const Waiter& w);

// A count that only grows. Where n ranks each add one and then wait for n times the number of their
// rounds, all come before one goes on.
struct Tally {
  uint64_t count = 0;
  uint64_t load() const;
  // Those that wait are woken where it becomes a multiple of n.
  void add_one(uint64_t n);
  // For a word that repeats one elsewhere: those that wait are woken where a multiple of n is
  // passed.
  void raise_to(uint64_t value, uint64_t n);
  // False: somebody failed.
  bool wait_for(uint64_t at_least, const Waiter& who) const;
};

// Rings when something has happened that a thread may wait for: whoever waits looks at what it
// waits for, after having read `rings`, and sleeps until there are others.
struct Bell {
  uint32_t rings = 0;
  uint32_t load() const;
  void ring();
  // Until it has rung since it was `seen`, at most so long; < 0: for ever.
  void wait(uint32_t seen, int64_t at_most_ns) const;
};

}  // namespace tegula
