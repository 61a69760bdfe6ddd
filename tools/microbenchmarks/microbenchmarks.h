// A file of microbenchmarks: what calls of a device were timed at, and the constants of its laws
// (cost/sustained.h) fitted to them. bench/microbenchmarks.py writes it.
//
//   {"format": "tegula.microbenchmarks", "version": 1, "device": "NVIDIA H200", "source": "…", and
//    "copies"       bytes (read and written, more than a cache holds), seconds
//    "products"     dtype, m, n, k, seconds: [m k]·[k n], a call among others
//    "attention"    kernel, dtype, batch, heads, seqlen, head_dim, mask ("none", "causal"),
//                   direction ("forward", "backward"), seconds
//    "collectives"  op, ranks, at_once (groups at a time: ranks so far apart), bytes
//                   (collective.h's M), seconds
//    "constants"    what, value: one of the host's (op, module, …), or clock, what products alone
//                   leave of it for long
//   each a list of objects with these keys}
//
// A call's time is its price (cost/), of which these constants are free: copies' share of the
// bandwidth; products' `product` and `k_half`; attention's `most` and `half`, of each kernel,
// direction and width of heads; a collective's share of its link and the least of a message, of
// each op, within a node and between nodes. They are those of least squares of relative errors over
// all rows. How far a law is off is told by constants from every second size, on the others: nine
// of ten of these errors are at most the residual. The ends of an interval (Sustained::fast, slow)
// are as wide as the residuals of all laws of a kind together. A section that is left out stays as
// it was.
// Errors: another format or version, a device that is not the cluster's, a key that is not there or
// not known, a number that is not positive, a call that is faster than the device's peaks or 1,000
// times as slow, too few rows of a law.
#pragma once

#include "tegula/cost/accelerator.h"
#include "tegula/io/json.h"

namespace tegula::planner {

// Fits the device to a file, for a job whose products have that dtype. What is said of it: file,
// source, laws (law, rows, its constants, residual or null), missing (sections),
// rows_of_other_dtypes (products that were not used).
Result<Json> apply_microbenchmarks(const std::string& file, Number dtype, Accelerator& device);

}  // namespace tegula::planner
