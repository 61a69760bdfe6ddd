// Scaled RoPE in config.json: an object, "rope_parameters" since transformers 5 and "rope_scaling"
// before, whose "rope_type" (or "type") says how. Families whose layers turn in two ways keep it as
// "rope_parameters.full_attention", and scale those layers alone.
#pragma once

#include "tegula/io/json.h"
#include "tegula/models/rotary.h"

namespace tegula {

// Members of such an object that are read, by spaces, besides rope_theta.
inline constexpr std::string_view kRopeMembers =
    "rope_type type factor low_freq_factor high_freq_factor original_max_position_embeddings "
    "attention_factor beta_fast beta_slow mscale mscale_all_dim truncate short_factor long_factor";
inline constexpr std::string_view kRopeTypes = "linear, dynamic, llama3, yarn and longrope";

// Errors: other types, members that the type has not or that it needs, two objects that contradict;
// each by file and key.
Status read_rope_scaling(const Json& json, const std::string& path, const ModelDef& model,
                         ModelConfig& config);
// Nothing where there is no scaling.
void write_rope_scaling(const ModelConfig& config, Json& json);

}  // namespace tegula
