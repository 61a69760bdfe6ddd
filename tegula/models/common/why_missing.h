// Tells what may be wrong with files that lack a tensor, or have it in another shape.
#pragma once

#include <span>
#include <string>

#include "tegula/io/weight_files.h"
#include "tegula/models/config.h"

namespace tegula {

// "tensor lm_head.weight is missing, though …": why, and what to do.
std::string why_missing(const WeightFiles& files, const ModelConfig& config, std::string_view name);
// ": config.json has vocab_size 301": the keys that are the sizes which differ; "": none is.
std::string keys_of_sizes(const ModelConfig& config, std::span<const int64_t> has,
                          std::span<const int64_t> needs);
// "which the model … has no place for: it has num_hidden_layers 2": of a tensor that is too many.
std::string why_extra(const ModelConfig& config, std::string_view name);

}  // namespace tegula
