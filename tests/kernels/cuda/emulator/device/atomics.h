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

#define TEGULA_ATOMIC(name, type, result)                                                 \
  inline type name(type* at, type x) {                                                    \
    return ::tegula::emulated::exchange_with(at, [x](type a) -> type { return result; }); \
  }
#define TEGULA_ATOMICS(type)                                       \
  TEGULA_ATOMIC(atomicAdd, type, a + x)                            \
  TEGULA_ATOMIC(atomicSub, type, a - x)                            \
  TEGULA_ATOMIC(atomicMin, type, x < a ? x : a)                    \
  TEGULA_ATOMIC(atomicMax, type, a < x ? x : a)                    \
  TEGULA_ATOMIC(atomicAnd, type, a& x)                             \
  TEGULA_ATOMIC(atomicOr, type, a | x)                             \
  TEGULA_ATOMIC(atomicXor, type, a ^ x)                            \
  TEGULA_ATOMIC(atomicExch, type, x)                               \
  inline type atomicCAS(type* at, type compare, type x) {          \
    ::tegula::emulated::current_machine->pause();                  \
    return ::tegula::emulated::exchange_with(                      \
        at, [=](type a) -> type { return a == compare ? x : a; }); \
  }
TEGULA_ATOMICS(int)
TEGULA_ATOMICS(unsigned)
TEGULA_ATOMICS(unsigned long long)
TEGULA_ATOMIC(atomicAdd, float, a + x)
TEGULA_ATOMIC(atomicAdd, double, a + x)
TEGULA_ATOMIC(atomicExch, float, x)
TEGULA_ATOMIC(atomicInc, unsigned, a >= x ? 0 : a + 1)
TEGULA_ATOMIC(atomicDec, unsigned, a == 0 || a > x ? x : a - 1)
#undef TEGULA_ATOMICS
#undef TEGULA_ATOMIC
