// Memory that can say how much of it was really used.
//
// A Region is zero-filled or poisoned pages. Poisoned with a byte value, it can tell the highest
// byte that was ever written: that, not the plan, is the measured peak.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tegula/base/result.h"

namespace tegula {

class Region {
 public:
  Region() = default;
  ~Region();
  Region(Region&& other) noexcept;
  Region& operator=(Region&& other) noexcept;

  // Error out_of_memory names the size and what the machine has.
  static Result<Region> allocate(int64_t bytes);

  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  void poison(uint8_t value);
  // One past the highest byte that no longer holds `value`; 0 if none.
  int64_t touched(uint8_t value) const;

  // Σ bytes of all live Regions, and the largest it has been since reset_peak().
  static int64_t live_bytes();
  static int64_t peak_bytes();
  static void reset_peak();

 private:
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace tegula
