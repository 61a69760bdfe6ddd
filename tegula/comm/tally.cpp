#include "tegula/comm/tally.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <ctime>

namespace tegula {

namespace {
constexpr long kLook_ns = 50'000'000;

// Until the word has another value or somebody wakes it, or it is time to look: that is a beat.
void sleep_while(const uint32_t* word, uint32_t value, RankState* state) {
  const timespec most{0, kLook_ns};
  const bool is_late =
      ::syscall(SYS_futex, word, FUTEX_WAIT, value, &most, nullptr, 0) != 0 && errno == ETIMEDOUT;
  if (is_late && state) __atomic_add_fetch(&state->beats, 1, __ATOMIC_RELAXED);
}

void wake_all(const uint32_t* word) {
  ::syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// Seen as waiting while this lives.
struct Seen {
  RankState* state;
  explicit Seen(RankState* s) : state(s) {
    if (!state) return;
    __atomic_store_n(&state->beats, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&state->is_waiting, 1, __ATOMIC_RELEASE);
  }
  Seen(const Seen&) = delete;
  ~Seen() {
    if (state) __atomic_store_n(&state->is_waiting, 0, __ATOMIC_RELEASE);
  }
};
}  // namespace

bool has_failed(const Waiter& w) { return __atomic_load_n(w.failed, __ATOMIC_ACQUIRE) != 0; }

uint64_t Tally::load() const { return __atomic_load_n(&count, __ATOMIC_ACQUIRE); }

void Tally::add_one(uint64_t n) {
  if (__atomic_add_fetch(&count, 1, __ATOMIC_ACQ_REL) % n == 0)
    wake_all(reinterpret_cast<const uint32_t*>(&count));  // its lower half comes first
}

void Tally::raise_to(uint64_t value, uint64_t n) {
  const uint64_t before = __atomic_exchange_n(&count, value, __ATOMIC_ACQ_REL);
  if (before / n != value / n) wake_all(reinterpret_cast<const uint32_t*>(&count));
}

bool Tally::wait_for(uint64_t at_least, const Waiter& who) const {
  if (load() >= at_least) return !has_failed(who);
  const Seen seen(who.state);
  for (uint64_t now = load(); now < at_least; now = load()) {
    if (has_failed(who)) return false;
    sleep_while(reinterpret_cast<const uint32_t*>(&count), static_cast<uint32_t>(now), who.state);
  }
  return !has_failed(who);
}

uint32_t Bell::load() const { return __atomic_load_n(&rings, __ATOMIC_SEQ_CST); }

void Bell::ring() {
  __atomic_add_fetch(&rings, 1, __ATOMIC_SEQ_CST);
  wake_all(&rings);
}

void Bell::wait(uint32_t seen, int64_t at_most_ns) const {
  const timespec most{at_most_ns / 1'000'000'000, at_most_ns % 1'000'000'000};
  ::syscall(SYS_futex, &rings, FUTEX_WAIT, seen, at_most_ns < 0 ? nullptr : &most, nullptr, 0);
}

}  // namespace tegula
