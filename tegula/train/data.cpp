#include "tegula/train/data.h"

#include "tegula/base/algorithm.h"
#include "tegula/base/philox.h"

namespace tegula {

void fill_rows(std::span<const int32_t> tokens, std::span<const int64_t> places, int64_t seqlen,
               int32_t* out_tokens, int32_t* out_targets) {
  for (const int64_t place : places) {
    const auto* at = tokens.data() + place;
    out_tokens = std::copy(at, at + seqlen, out_tokens);
    out_targets = std::copy(at + 1, at + seqlen + 1, out_targets);
  }
}

void fill_batch(std::span<const int32_t> tokens, uint64_t seed, int64_t step, int64_t batch,
                int64_t seqlen, int32_t* out_tokens, int32_t* out_targets) {
  constexpr uint64_t kStream = 0x64617461;  // "data"
  const auto places = static_cast<uint64_t>(tokens.size()) - static_cast<uint64_t>(seqlen);
  for (int64_t r = 0; r < batch; ++r) {
    const auto i = static_cast<uint64_t>(step * batch + r);
    const uint64_t bits =
        (uint64_t{philox_bits(seed, kStream, 2 * i)} << 32) | philox_bits(seed, kStream, 2 * i + 1);
    const auto place = static_cast<int64_t>(bits % places);
    fill_rows(tokens, {&place, 1}, seqlen, out_tokens + r * seqlen, out_targets + r * seqlen);
  }
}

}  // namespace tegula
