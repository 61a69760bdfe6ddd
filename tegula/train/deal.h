// The order in which the ranks of cp share out the tokens of a row, so that under a causal mask
// each has as much attention to do as the others.
//
//   contiguous  rank r of n has the r-th n-th: the last one 2n - 1 times the first one's pairs
//   zigzag      of 2n pieces the r-th and the (2n-1-r)-th: all have the same
//               [Dubey et al. 2024 (Llama 3), section 3.3.2]
//   striped     r, r + n, r + 2n, …: all but the same [Brandon et al. 2023, section 3]
//
// The step's rows lie in that order, rank after rank, and everything that asks for a token's
// position is told (Context::order): so a share of a row is a range of it, as ever.
#pragma once

#include "tegula/train/config.h"

namespace tegula {

// The positions of a dealt row in runs (start, stride, count, …); none: it lies as it is. So it
// does where cp has one rank; in mode exact, whose sums go over a row in order; with dropout and
// with experts, where a token's place says what it loses; in a model that carries a state from
// token to token; and where 2n pieces of a zigzag are not equal.
std::vector<int64_t> dealt_order(const TrainConfig& config);

// Why a row lies as it is though config.ring and a cp of several ranks ask for another; "": it does
// not, or nobody asked.
std::string why_not_dealt(const TrainConfig& config);

// Rows of as many as the order has, each brought in it.
void deal(std::span<const int64_t> order, std::vector<int32_t>& rows);

}  // namespace tegula
