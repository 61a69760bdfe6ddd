// Scaled RoPE in config.json: an object, "rope_parameters" since transformers 5 and "rope_scaling"
// before, whose "rope_type" (or "type") says how: "default", "linear", or Llama 3.1's "llama3".
#pragma once

#include "tegula/io/json.h"
#include "tegula/models/config.h"

namespace tegula {

// Members of such an object that are read, by spaces, besides rope_theta.
inline constexpr std::string_view kRopeMembers =
    "rope_type type factor low_freq_factor high_freq_factor original_max_position_embeddings";

// Errors: other types, members that the type has not or that it needs, two objects that contradict;
// each by file and key.
Status read_rope_scaling(const Json& json, const std::string& path, ModelConfig& config);
// Nothing where there is no scaling.
void write_rope_scaling(const ModelConfig& config, Json& json);

}  // namespace tegula
