// Pieces of the Llama family that its relatives share.
#pragma once

#include "tegula/models/model.h"

namespace tegula {

// x W^T (+ bias), W [n_out, n_in] as PyTorch keeps it. x: [t k] or [b s k].
Var llama_linear(Context& c, Var x, const std::string& name, int64_t n_out, double stddev = 0.02,
                 bool has_bias = false);
// Standard deviation of the projections that end in the residual stream. [Radford et al. 2019]
double residual_stddev(const ModelConfig& config);

// The decoder with a feed-forward layer of its own: ffn(c, x [b s d], "model.layers.3.") -> [b s d]
Var llama_decoder(Context& c, Var tokens, Var (*ffn)(Context&, Var x, const std::string& at));
Var llama_head(Context& c);

}  // namespace tegula
