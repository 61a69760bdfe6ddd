#include "tegula/train/masking.h"

#include <cmath>

#include "tegula/base/algorithm.h"
#include "tegula/base/philox.h"
#include "tegula/io/json.h"
#include "tegula/models/model_files.h"
#include "tegula/text/tokenizer.h"

namespace tegula {

void Masking::apply(uint64_t seed, Stream stream, int64_t first, int64_t seqlen,
                    std::span<int32_t> tokens, std::span<int32_t> targets) const {
  const auto n_around = static_cast<int64_t>(before.size() + behind.size());
  const int64_t n_chosen =
      std::max<int64_t>(1, std::llround(kMaskedShare * static_cast<double>(seqlen - n_around)));
  const auto n_rows = static_cast<int64_t>(tokens.size()) / seqlen;
  std::vector<std::pair<uint32_t, int64_t>> order;  // of the places that may be chosen
  for (int64_t r = 0; r < n_rows; ++r) {
    int32_t* const row = tokens.data() + r * seqlen;
    const auto numbers = [&](int64_t place) {
      return philox_block(seed, stream, static_cast<uint64_t>((first + r) * seqlen + place));
    };
    std::copy_backward(row, row + seqlen - n_around, row + seqlen - behind.size());
    std::copy(before.begin(), before.end(), row);
    std::copy(behind.begin(), behind.end(), row + seqlen - behind.size());
    order.clear();
    for (int64_t i = 0; i < seqlen; ++i)
      if (!is_special[static_cast<size_t>(row[i])]) order.emplace_back(numbers(i)[0], i);
    const auto n = std::min(n_chosen, static_cast<int64_t>(order.size()));
    std::partial_sort(order.begin(), order.begin() + n, order.end());
    std::fill_n(targets.data() + r * seqlen, seqlen, kIgnored);
    for (int64_t k = 0; k < n; ++k) {
      const int64_t i = order[static_cast<size_t>(k)].second;
      targets[static_cast<size_t>(r * seqlen + i)] = row[i];
      const auto [unused, fate, token, unread] = numbers(i);
      const double share = fate * 0x1p-32;
      if (share < 0.8)
        row[i] = mask;
      else if (share < 0.9)
        row[i] = static_cast<int32_t>(uint64_t{token} * static_cast<uint64_t>(vocab_size) >> 32);
    }
  }
}

Result<Masking> masking_of(const Tokenizer& tokenizer, const ModelFiles* files, int64_t seqlen) {
  std::string name = kMaskToken;
  if (files != nullptr) {
    const auto [path, text] = TEGULA_TRY(files->special_tokens());
    const Json named = TEGULA_TRY(Json::parse(text, path));
    const Json* its = named.find("mask_token");
    if (its != nullptr && its->as<std::string>() != nullptr) name = *its->as<std::string>();
  }
  Masking m;
  m.mask = tokenizer.special(name);
  if (m.mask < 0)
    return invalid_argument(cat("the tokenizer has no special token ", name,
                                ", which stands where a token is masked: name it as mask_token in ",
                                "tokenizer_config.json, or start from a model that has one"));
  m.vocab_size = static_cast<int32_t>(tokenizer.vocab_size());
  m.before.assign(tokenizer.before().begin(), tokenizer.before().end());
  m.behind.assign(tokenizer.behind().begin(), tokenizer.behind().end());
  for (int32_t id = 0; id < m.vocab_size; ++id) m.is_special.push_back(tokenizer.is_special(id));
  const auto n_around = static_cast<int64_t>(m.before.size() + m.behind.size());
  if (seqlen > n_around) return m;
  return invalid_argument(cat("--seqlen ", seqlen, ": the tokenizer puts ", n_around,
                              " tokens around every text, and none is left to be found: give at "
                              "least ",
                              n_around + 1));
}

}  // namespace tegula
