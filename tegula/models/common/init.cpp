#include "tegula/models/init.h"

#include <cmath>

#include "tegula/base/philox.h"

namespace tegula {

namespace {
// FNV-1a: a stream per name.
uint64_t stream_of(std::string_view name) {
  uint64_t h = 0xcbf29ce484222325;
  for (char c : name) h = (h ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return h;
}
}  // namespace

void init_weight(const WeightSpec& spec, uint64_t seed, const TensorRef& out) {
  const uint64_t stream = stream_of(spec.name);
  auto* p = out.as<float>();
  const int64_t n = out.numel();
  for (int64_t i = 0; i < n; ++i) {
    if (spec.init == Init::kNormal) {
      const auto k = static_cast<uint64_t>(i);
      const double u = (philox_bits(seed, stream, 2 * k) + 0.5) * 0x1p-32;
      const double v = philox_bits(seed, stream, 2 * k + 1) * 0x1p-32;
      p[i] = static_cast<float>(spec.stddev * std::sqrt(-2 * std::log(u)) * std::cos(2 * M_PI * v));
    } else {
      p[i] = spec.init == Init::kOnes ? 1.0f : 0.0f;
    }
  }
}

}  // namespace tegula
