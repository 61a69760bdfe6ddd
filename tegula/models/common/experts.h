// A sparse feed-forward layer: a router sends each token to the k likeliest of e experts and weighs
// their results. [Shazeer et al. 2017; Jiang et al. 2024; Dai et al. 2024 for shared experts]
#pragma once

#include "tegula/models/decoder.h"

namespace tegula {

// [b s d] -> [b s d]; layer: "model.layers.3.".
Var expert_ffn(Context& c, const Experts& e, Var x, const std::string& layer);

}  // namespace tegula
