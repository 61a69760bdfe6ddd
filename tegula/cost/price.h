// Price: seconds of work on a target, by the roofline [Williams et al. 2009]: the longer of its
// operations at the target's rate for their dtype and its least bytes at the target's rate.
//
//   seconds = max(flops / (peak · efficiency), bytes / (bandwidth · efficiency))
//
// The one model of time that passes and planners read. A target whose rates are not known (this
// machine before anybody measured it) is priced as 1e11 operations and 1e10 bytes a second, so that
// what is chosen by price does not change from run to run.
#pragma once

#include "tegula/ir/opdef.h"
#include "tegula/kernels/target.h"

namespace tegula {

// Operations a second that the target reaches on operands of a dtype.
double flops_per_s(const Target& target, DType dtype);
double bytes_per_s(const Target& target);
// The same of elementwise operations in a fused loop, which are no multiply-adds and of which some
// are functions that take many instructions but count as one.
double elementwise_flops_per_s(const Target& target);
// Bytes that the target's caches hold, all cores' together: less than this need not go to memory.
int64_t cached_bytes(const Target& target);

double price(const Target& target, DType dtype, double flops, double bytes);
// The price of an op alone, every operand read once, every result written once; of a collective,
// with its exchange.
double price(const Target& target, const OpCall& call);

// A rank's wait for others: α·n_meetings + β·bytes, where bytes are those it sends. They are the
// target's link's; where that is not known, ranks are threads that share memory: β is a copy's, α
// what one meeting takes. [Thakur et al. 2005]
double price_of_exchange(const Target& target, int n_meetings, double sent_bytes);
// A collective's price: the exchange of the rank that sends most, and nγ, the reading and adding.
double price_of_collective(const Target& target, const OpCall& call);

}  // namespace tegula
