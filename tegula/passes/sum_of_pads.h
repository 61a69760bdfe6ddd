// The sum of zero-padded pieces that lie side by side is their concatenation: how the gradients of
// slices (query, key and value of one product; the gates of an LSTM) come back together.
#pragma once

#include "tegula/passes/peephole.h"

namespace tegula {

// n is an add. Adding 0 turns -0 into 0: pieces that may hold -0 get a "+ 0", which fuses into what
// makes them.
Var sum_of_pads(Peephole& p, const Node& n);

// Is no element of v ever -0? With sums_count, contractions and sums are said to be so, too: they
// start from 0, and are -0 only where a negative total underflows.
bool never_minus_zero(const Function& f, ValueId v, bool sums_count = false);

}  // namespace tegula
