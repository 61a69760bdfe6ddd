// Work of a warp's lanes together: each brings a slot, the last to come does it for all.
#pragma once

namespace tegula::emulated {

inline constexpr unsigned kAllLanes = 0xffffffff;

inline unsigned lane() {
  const Thread& t = *current_thread;
  return (t.thread_index.x +
          t.block_dim.x * (t.thread_index.y + t.block_dim.y * t.thread_index.z)) %
         kWarpSize;
}

// Instructions that name no lanes need all of them.
inline void need_whole_warp(unsigned lanes, const char* message) {
  if (lanes != kAllLanes) fail(message);
}

inline void join_nothing(void* const (&)[kWarpSize], unsigned) {}

template <class T>
struct Shuffle {
  T value, result;
  int from;  // a lane; -1: its own
};
template <class T>
void join_shuffle(void* const (&slots)[kWarpSize], unsigned lanes) {
  for (unsigned i = 0; i < kWarpSize; ++i) {
    if ((lanes >> i & 1) == 0) continue;
    auto& to = *static_cast<Shuffle<T>*>(slots[i]);
    if (to.from < 0) {
      to.result = to.value;
      continue;
    }
    if ((lanes >> to.from & 1) == 0)
      fail("a shuffle reads from a lane that has ended or is not in the mask");
    to.result = static_cast<Shuffle<T>*>(slots[to.from])->value;
  }
}
template <class T>
T shuffle(unsigned lanes, T value, int from, const char* what) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 2, "shuffles move registers");
  Shuffle<T> slot{value, value, from};
  current_machine->meet(lanes, what, join_shuffle<T>, &slot);
  return slot.result;
}
inline void check_width(int width) {
  if (width <= 0 || width > 32 || (width & (width - 1)) != 0)
    fail("the width of a shuffle is not a power of two up to 32");
}

template <class T>
struct Vote {
  T value, result;
};
template <class T, class Of>
T vote(unsigned lanes, T value, const char* what, Of) {
  Vote<T> slot{value, {}};
  current_machine->meet(
      lanes, what,
      [](void* const(&slots)[kWarpSize], unsigned present) {
        T result{};
        bool is_first = true;
        for (unsigned i = 0; i < kWarpSize; ++i) {
          if ((present >> i & 1) == 0) continue;
          const T x = static_cast<Vote<T>*>(slots[i])->value;
          result = is_first ? Of::first(x, i) : Of::next(result, x, i);
          is_first = false;
        }
        for (unsigned i = 0; i < kWarpSize; ++i)
          if ((present >> i & 1) != 0) static_cast<Vote<T>*>(slots[i])->result = result;
      },
      &slot);
  return slot.result;
}
#define EMULATED_VOTE(name, first_, next_)                 \
  struct name {                                            \
    template <class T>                                     \
    static T first(T x, [[maybe_unused]] unsigned i) {     \
      return first_;                                       \
    }                                                      \
    template <class T>                                     \
    static T next(T a, T x, [[maybe_unused]] unsigned i) { \
      return next_;                                        \
    }                                                      \
  };
EMULATED_VOTE(OfBallot, T(x) << i, a | T(x) << i)
EMULATED_VOTE(OfSum, x, a + x)
EMULATED_VOTE(OfMin, x, a < x ? a : x)
EMULATED_VOTE(OfMax, x, a < x ? x : a)
EMULATED_VOTE(OfAnd, x, a& x)
EMULATED_VOTE(OfOr, x, a | x)
EMULATED_VOTE(OfXor, x, a ^ x)
#undef EMULATED_VOTE

}  // namespace tegula::emulated

inline void __syncthreads() { ::tegula::emulated::current_machine->sync(0, 0, true); }
inline int __syncthreads_count(int claim) {
  // Three barriers: the counter is set, added to, and read by all before it is set again.
  static thread_local volatile int count;  // shared; volatile is no race
  ::tegula::emulated::current_machine->sync(0, 0, true);
  count = 0;
  ::tegula::emulated::current_machine->sync(0, 0, true);
  count = count + (claim != 0);
  ::tegula::emulated::current_machine->sync(0, 0, true);
  return count;
}
inline int __syncthreads_or(int claim) { return __syncthreads_count(claim) > 0; }
inline int __syncthreads_and(int claim) { return __syncthreads_count(claim == 0) == 0; }
inline void __syncwarp(unsigned lanes = 0xffffffff) {
  ::tegula::emulated::current_machine->meet(lanes, "__syncwarp", ::tegula::emulated::join_nothing,
                                            nullptr);
}

template <class T>
T __shfl_sync(unsigned lanes, T value, int from, int width = 32) {
  ::tegula::emulated::check_width(width);
  const int own = static_cast<int>(::tegula::emulated::lane());
  return ::tegula::emulated::shuffle(lanes, value, (own & -width) | (from & (width - 1)),
                                     "__shfl_sync");
}
template <class T>
T __shfl_xor_sync(unsigned lanes, T value, int mask, int width = 32) {
  ::tegula::emulated::check_width(width);
  const int own = static_cast<int>(::tegula::emulated::lane()), from = own ^ mask;
  return ::tegula::emulated::shuffle(lanes, value, from >= (own & -width) + width ? -1 : from,
                                     "__shfl_xor_sync");
}
template <class T>
T __shfl_up_sync(unsigned lanes, T value, unsigned delta, int width = 32) {
  ::tegula::emulated::check_width(width);
  const int own = static_cast<int>(::tegula::emulated::lane()), from = own - int(delta);
  return ::tegula::emulated::shuffle(lanes, value, from < (own & -width) ? -1 : from,
                                     "__shfl_up_sync");
}
template <class T>
T __shfl_down_sync(unsigned lanes, T value, unsigned delta, int width = 32) {
  ::tegula::emulated::check_width(width);
  const int own = static_cast<int>(::tegula::emulated::lane()), from = own + int(delta);
  return ::tegula::emulated::shuffle(lanes, value, from >= (own & -width) + width ? -1 : from,
                                     "__shfl_down_sync");
}

inline unsigned __ballot_sync(unsigned lanes, int claim) {
  return ::tegula::emulated::vote(lanes, unsigned(claim != 0), "__ballot_sync",
                                  ::tegula::emulated::OfBallot());
}
inline int __any_sync(unsigned lanes, int claim) {
  return ::tegula::emulated::vote(lanes, unsigned(claim != 0), "__any_sync",
                                  ::tegula::emulated::OfOr()) != 0;
}
inline int __all_sync(unsigned lanes, int claim) {
  return ::tegula::emulated::vote(lanes, unsigned(claim != 0), "__all_sync",
                                  ::tegula::emulated::OfAnd()) != 0;
}
#define EMULATED_REDUCE(name, type, of)                                  \
  inline type __reduce_##name##_sync(unsigned lanes, type x) {           \
    return ::tegula::emulated::vote(lanes, x, "__reduce_" #name "_sync", \
                                    ::tegula::emulated::of());           \
  }
EMULATED_REDUCE(add, unsigned, OfSum)
EMULATED_REDUCE(add, int, OfSum)
EMULATED_REDUCE(min, unsigned, OfMin)
EMULATED_REDUCE(min, int, OfMin)
EMULATED_REDUCE(max, unsigned, OfMax)
EMULATED_REDUCE(max, int, OfMax)
EMULATED_REDUCE(and, unsigned, OfAnd)
EMULATED_REDUCE(or, unsigned, OfOr)
EMULATED_REDUCE(xor, unsigned, OfXor)
#undef EMULATED_REDUCE
