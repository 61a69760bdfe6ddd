// A number that threads add to, in any order. It stands for std::atomic, whose header most files
// that see a kernel have no other reason to parse.
#pragma once

#include <cstdint>

namespace tegula {

class Counter {
 public:
  constexpr Counter() = default;
  Counter(const Counter&) = delete;
  Counter& operator=(const Counter&) = delete;
  Counter& operator=(int64_t value) {
    __atomic_store_n(&value_, value, __ATOMIC_RELAXED);
    return *this;
  }
  int64_t load() const { return __atomic_load_n(&value_, __ATOMIC_RELAXED); }
  operator int64_t() const { return load(); }
  // Returns the sum.
  int64_t add(int64_t more) { return __atomic_add_fetch(&value_, more, __ATOMIC_RELAXED); }
  void raise_to(int64_t value) {
    int64_t old = load();
    while (old < value && !__atomic_compare_exchange_n(&value_, &old, value, true, __ATOMIC_RELAXED,
                                                       __ATOMIC_RELAXED)) {
    }
  }

 private:
  int64_t value_ = 0;
};

}  // namespace tegula
