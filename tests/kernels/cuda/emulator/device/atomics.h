// Atomics: threads take turns only where they wait, so plain reads and writes are whole. Each gives
// the value before.
#pragma once

namespace tegula::emulated {
template <class T, class F>
inline T exchange_with(T* at, F next) {
  volatile T& x = *at;  // which orders what is around it
  const T before = x;
  x = next(before);
  return before;
}
}  // namespace tegula::emulated

#define EMULATED_ATOMIC(name, type, result)                                               \
  inline type name(type* at, type x) {                                                    \
    return ::tegula::emulated::exchange_with(at, [x](type a) -> type { return result; }); \
  }
#define EMULATED_ATOMICS(type)                                     \
  EMULATED_ATOMIC(atomicAdd, type, a + x)                          \
  EMULATED_ATOMIC(atomicSub, type, a - x)                          \
  EMULATED_ATOMIC(atomicMin, type, x < a ? x : a)                  \
  EMULATED_ATOMIC(atomicMax, type, a < x ? x : a)                  \
  EMULATED_ATOMIC(atomicAnd, type, a& x)                           \
  EMULATED_ATOMIC(atomicOr, type, a | x)                           \
  EMULATED_ATOMIC(atomicXor, type, a ^ x)                          \
  EMULATED_ATOMIC(atomicExch, type, x)                             \
  inline type atomicCAS(type* at, type compare, type x) {          \
    ::tegula::emulated::current_machine->pause();                  \
    return ::tegula::emulated::exchange_with(                      \
        at, [=](type a) -> type { return a == compare ? x : a; }); \
  }
EMULATED_ATOMICS(int)
EMULATED_ATOMICS(unsigned)
EMULATED_ATOMICS(unsigned long long)
EMULATED_ATOMIC(atomicAdd, float, a + x)
EMULATED_ATOMIC(atomicAdd, double, a + x)
EMULATED_ATOMIC(atomicExch, float, x)
EMULATED_ATOMIC(atomicInc, unsigned, a >= x ? 0 : a + 1)
EMULATED_ATOMIC(atomicDec, unsigned, a == 0 || a > x ? x : a - 1)
#undef EMULATED_ATOMICS
#undef EMULATED_ATOMIC
