#include "tegula/models/init.h"

#include <cmath>

#include "tegula/base/algorithm.h"
#include "tegula/base/philox.h"
#include "tegula/base/round.h"

namespace tegula {

namespace {
// FNV-1a: a stream per name.
uint64_t stream_of(std::string_view name) {
  uint64_t h = 0xcbf29ce484222325;
  for (char c : name) h = (h ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return h;
}

constexpr int64_t kChunk = 1 << 14;  // even: a block of random bits makes two values

// values[first … end) of a stream.
void fill_normal(float* values, int64_t first, int64_t end, double stddev, uint64_t seed,
                 uint64_t stream) {
  for (int64_t i = first; i < end; i += 2) {
    const auto bits = philox_block(seed, stream, static_cast<uint64_t>(i / 2));
    for (int64_t j = 0; j < std::min<int64_t>(2, end - i); ++j) {
      const double u = (bits[2 * j] + 0.5) * 0x1p-32, v = bits[2 * j + 1] * 0x1p-32;
      values[i + j] =
          static_cast<float>(stddev * std::sqrt(-2 * std::log(u)) * std::cos(2 * M_PI * v));
    }
  }
}
}  // namespace

void init_weight(const WeightSpec& spec, uint64_t seed, const TensorRef& out, ThreadPool* pool) {
  auto* p = out.as<float>();
  const int64_t n = out.numel();
  if (spec.init != Init::kNormal) {
    std::fill_n(p, n, spec.init == Init::kOnes ? 1.0F : 0.0F);
    return;
  }
  const uint64_t stream = stream_of(spec.name);
  const auto fill = [&](int64_t chunk, int) {
    fill_normal(p, chunk * kChunk, std::min(n, (chunk + 1) * kChunk), spec.stddev, seed, stream);
  };
  const int64_t n_chunks = ceil_div(n, kChunk);
  if (pool && n_chunks > 1)
    pool->parallel_for(n_chunks, fill);
  else
    for (int64_t c = 0; c < n_chunks; ++c) fill(c, 0);
}

}  // namespace tegula
