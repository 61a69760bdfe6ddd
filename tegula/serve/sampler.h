// Sampling a token from logits. Deterministic: token n of a request depends on (seed, n, logits,
// the tokens before it).
//
// In this order, which is that of transformers' processors: biases are added; repeated tokens are
// penalised; logits are divided by the temperature; of the tokens the top_k likeliest are kept; of
// those the fewest likeliest that reach top_p; of those the ones that are min_p times as likely as
// the likeliest; of those the fewest most typical ones (Meister et al. 2023) that reach typical_p;
// one is drawn of what is left, by softmax. Of equals the first ones are kept. At temperature 0 the
// likeliest is taken once biases and penalties are counted in.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tegula {

struct SamplerConfig {
  double temperature = 1.0;  // 0: the largest logit
  int64_t top_k = 0;         // 0: all
  double top_p = 1.0;        // the smallest set of tokens whose probability reaches it
  uint64_t seed = 0;
  double min_p = 0, typical_p = 1.0;
  // A token that prompt or text have: its logit times it if negative, else by it. [Keskar et al.
  // 2019]
  double repetition_penalty = 1.0;
  // Taken off the logit of a token that the text, without the prompt, has: times how often; once.
  double frequency_penalty = 0, presence_penalty = 0;
  std::vector<std::pair<int32_t, double>> bias = {};  // added to the logits of tokens

  // Whether logits are changed before any are compared.
  bool adjusts() const {
    return !bias.empty() || repetition_penalty != 1 || frequency_penalty != 0 ||
           presence_penalty != 0;
  }
};

// How often a text has each token so far; the first n_prompt are the prompt's. Cost of follow():
// linear in the tokens that are new; of a draw that is penalised: linear in the different tokens.
class TokensBefore {
 public:
  TokensBefore() = default;
  TokensBefore(std::span<const int32_t> all, size_t n_prompt) { follow(all, n_prompt); }
  // Counts those behind the ones that are counted: `all` is what it was, and more.
  void follow(std::span<const int32_t> all, size_t n_prompt);
  // By token how often the text has it without the prompt: 0 for one that only the prompt has.
  const std::unordered_map<int32_t, int64_t>& counts() const { return counts_; }

 private:
  std::unordered_map<int32_t, int64_t> counts_;
  size_t n_counted_ = 0;
};

// `logits` is not empty. A NaN is below every number and never drawn where there is one; whoever
// wants to know of it asks before (Runner does).
int32_t sample(std::span<const float> logits, const SamplerConfig& config, uint64_t position,
               const TokensBefore& before = {});

// Choices that sample() draws from at a temperature above 0: tokens, probabilities, likeliest
// first.
std::vector<std::pair<int32_t, double>> distribution(std::span<const float> logits,
                                                     const SamplerConfig& config,
                                                     const TokensBefore& before = {});

}  // namespace tegula
