// Sampling a token from logits. Deterministic: token n of a request depends on (seed, n, logits).
#pragma once

#include <cstdint>
#include <span>

namespace tegula {

struct SamplerConfig {
  double temperature = 1.0;  // 0: the largest logit
  int64_t top_k = 0;         // 0: all
  double top_p = 1.0;        // the smallest set of tokens whose probability reaches it
  uint64_t seed = 0;
};

// `logits` is not empty. A NaN is below every number and never drawn where there is one; whoever
// wants to know of it asks before (Runner does).
int32_t sample(std::span<const float> logits, const SamplerConfig& config, uint64_t position);

}  // namespace tegula
