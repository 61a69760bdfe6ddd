// Bytes that a decoder's layer, and the head's loss, read, write and keep where PyTorch executes
// them op by op. Products and attention stay as they are.
//
// With T tokens, E bytes an element of the residual stream (4 under autocast) and e of what
// products read, forward:
//   norm        2·E·T·h, and the sum before it (2·E + e)·T·h; under autocast one cast of 6·T·h for
//               each product that reads it; in steps 20 + 2·E, and 2·(4 + E) of casts unless E is 4
//   turned q, k 9 passes of half or whole rows: four products, a difference, a sum, a concatenation
//   activation  gated 5·e·T·f, else 2·e·T·f
// and each keeps what its derivative reads: the input of a norm, what each product reads (a cast
// for each), q, k, v, attention's result, and of a gate itself, its activation, the other factor
// and their product.
#pragma once

#include "tegula/planner/layer_work.h"

namespace tegula::planner {

// Changes the work of a layer, or of the head (the final norm has one reader).
void execute_like_torch(const ModelSpec& model, const RankShape& shape, bool is_head,
                        LayerWork& work);

}  // namespace tegula::planner
