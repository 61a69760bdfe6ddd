// Which accesses to shared memory are ordered by what warps wait for, and which only happened to
// come in this order: a race, though the results may be right.
//
// Each warp has a vector of clocks: how far into every warp's work it has seen (Mattern 1989). What
// releases (a barrier, an mbarrier, an atomic) takes the warp's vector, what acquires joins it. An
// access races with one before it of another warp, one of the two a write, that its warp has not
// seen (FastTrack: Flanagan and Freund 2009, §3). Lanes of one warp are not told apart, nor is what
// copy engines write.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/kernels/cuda/emulator/machine.h"

namespace tegula::emulated {

inline constexpr unsigned kClocks = 32;  // warps of a block
using Clocks = std::array<uint32_t, kClocks>;

class Races {
 public:
  // Begins a block of so many warps with so many bytes of shared memory.
  void begin(unsigned n_warps, size_t bytes);
  // Empty, or with whom the access to these bytes races.
  std::string access(unsigned warp, size_t at, unsigned bytes, bool writes);
  void release(unsigned warp, Clocks& into);
  void acquire(unsigned warp, const Clocks& from);
  // An address that is not a barrier of the block is known by its address.
  Clocks& at(uintptr_t address) { return by_address_[address]; }

 private:
  // The accesses of two bytes.
  struct Word {
    uint32_t written = 0;  // the writer's clock; 0: never
    uint8_t writer = 0;
    uint32_t readers = 0;  // since then
  };
  unsigned n_warps_ = 0;
  std::vector<Word> words_;
  std::vector<uint32_t> reads_;  // clocks, of each word by warp
  std::array<Clocks, kClocks> seen_;
  std::map<uintptr_t, Clocks> by_address_;
};

}  // namespace tegula::emulated
