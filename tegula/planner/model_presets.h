// Published models by name, with the sequence length and tokens a step that they were trained with.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "tegula/planner/model.h"

namespace tegula::planner {

struct ModelPreset {
  ModelSpec model;
  int64_t seqlen = 0;              // of most of the training
  int64_t batch_tokens = 0;        // of a step, at its largest
  std::vector<std::string> notes;  // what of its file is not counted
};

std::span<const ModelPreset> model_presets();
// Error: the three nearest names.
Result<ModelPreset> find_model_preset(std::string_view name);

}  // namespace tegula::planner
