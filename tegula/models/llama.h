// Pieces of the Llama family that its relatives share.
#pragma once

#include "tegula/models/model.h"

namespace tegula {

Var llama_linear(Context& c, Var x, const std::string& name, int64_t n_out);
Var llama_norm(Context& c, Var x, const std::string& name);
// Rotary, grouped-query, causal attention with its four projections: [b s d] -> [b s d].
Var llama_attention(Context& c, Var x, const std::string& at, int64_t layer);
Var llama_embed(Context& c, Var tokens);
Var llama_table(Context& c);
Var llama_head(Context& c);

}  // namespace tegula
