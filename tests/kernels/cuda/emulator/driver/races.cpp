#include "tests/kernels/cuda/emulator/driver/races.h"

#include <algorithm>
#include <bit>

#include "tegula/base/str.h"

namespace tegula::emulated {

namespace {
constexpr size_t kWord_bytes = 2;
}

void Races::begin(unsigned n_warps, size_t bytes) {
  n_warps_ = n_warps;
  words_.assign(bytes / kWord_bytes + 1, {});
  reads_.resize(words_.size() * n_warps);
  for (unsigned w = 0; w < kClocks; ++w) {
    seen_[w].fill(0);
    seen_[w][w] = 1;
  }
  by_address_.clear();
}

void Races::release(unsigned warp, Clocks& into) {
  for (unsigned w = 0; w < kClocks; ++w) into[w] = std::max(into[w], seen_[warp][w]);
  ++seen_[warp][warp];
}

void Races::acquire(unsigned warp, const Clocks& from) {
  for (unsigned w = 0; w < kClocks; ++w) seen_[warp][w] = std::max(seen_[warp][w], from[w]);
}

std::string Races::access(unsigned warp, size_t at, unsigned bytes, bool writes) {
  const Clocks& seen = seen_[warp];
  for (size_t i = at / kWord_bytes; i <= (at + bytes - 1) / kWord_bytes; ++i) {
    Word& word = words_[i];
    const auto says = [&](const char* what, unsigned other) {
      return cat(writes ? "is written by warp " : "is read by warp ", warp, " and ", what,
                 " by warp ", other, " with nothing that orders the two");
    };
    if (word.written > seen[word.writer]) return says("was written", word.writer);
    uint32_t* reads = reads_.data() + i * n_warps_;
    if (!writes) {
      word.readers |= 1U << warp;
      reads[warp] = seen[warp];
      continue;
    }
    for (uint32_t readers = word.readers; readers != 0; readers &= readers - 1) {
      const auto other = static_cast<unsigned>(std::countr_zero(readers));
      if (other != warp && reads[other] > seen[other]) return says("was read", other);
    }
    word = {seen[warp], static_cast<uint8_t>(warp), 0};
  }
  return "";
}

}  // namespace tegula::emulated
