// Batches: which tokens a step sees is a function of (seed, step) alone, so that a resumed run, or
// a run on other ranks, sees the same.
#pragma once

#include <cstdint>
#include <span>

namespace tegula {

// Row r of the batch is train[o, o + seqlen) with targets one later; o uniform, drawn by
// Philox(seed, step·batch + r).
void fill_batch(std::span<const int32_t> tokens, uint64_t seed, int64_t step, int64_t batch,
                int64_t seqlen, int32_t* out_tokens, int32_t* out_targets);

// The same for rows that begin at these places of the tokens.
void fill_rows(std::span<const int32_t> tokens, std::span<const int64_t> places, int64_t seqlen,
               int32_t* out_tokens, int32_t* out_targets);

}  // namespace tegula
