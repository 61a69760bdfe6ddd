// Masked language modelling: which tokens of a row an encoder has to find again, and what it sees
// in their place.
//
// A row is text between the ids that the tokenizer puts around one ([CLS], [SEP]). Of its n tokens
// of text max(1, round(0.15 n)) are chosen, special ones never; of these 80 % become [MASK], 10 %
// any token of the vocabulary, 10 % stay. A target is the token that was there, where it is chosen,
// else kIgnored, of which no loss counts. All rows have as many chosen tokens, so that the mean
// over a batch's rows is that over the rows' means: micro-batches and ranks may share them out.
//
// The fate of a token is a function of (seed, stream, row, position) alone, with Philox's
// numbers: four of each place, of which the first one orders the row's places (the smallest are
// chosen), the second says what becomes of a chosen one, the third is the token that it may become.
// [Devlin et al. 2019, section 3.1, appendix A.1, and its create_pretraining_data.py]
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tegula/base/result.h"

namespace tegula {

class ModelFiles;
class Tokenizer;

inline constexpr int32_t kIgnored = -100;
inline constexpr double kMaskedShare = 0.15;

struct Masking {
  int32_t mask = 0;                     // the id of [MASK]
  int32_t vocab_size = 0;               // of the tokenizer
  std::vector<int32_t> before, behind;  // ids around a row
  std::vector<bool> is_special;         // by id

  // The streams of the rows that are trained on, and of those of the two splits.
  enum Stream : uint64_t { kSteps = 0x6d61736b, kValidation, kTraining };
  // Rows of seqlen tokens in turn, the first of which is row `first`: text, of which as many tokens
  // are dropped at the end as stand around it. `targets` is as long.
  void apply(uint64_t seed, Stream stream, int64_t first, int64_t seqlen, std::span<int32_t> tokens,
             std::span<int32_t> targets) const;
};

// That of a model whose texts the tokenizer makes; `files`, which say what [MASK] is called: those
// that it came from, null if it was trained here. Errors: it has none; rows with no room for text.
Result<Masking> masking_of(const Tokenizer& tokenizer, const ModelFiles* files, int64_t seqlen);

}  // namespace tegula
