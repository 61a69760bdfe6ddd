// From config.json and to the graph: the models that the project executes, as ModelSpecs.
#pragma once

#include <string>

#include "tegula/models/config.h"
#include "tegula/planner/model_presets.h"

namespace tegula::planner {

// A preset, a config.json, or a folder that holds one. Of a file, the training length is the
// longest sequence that it names, and no batch is known (0).
// Keys that change no cost (scaled rotary positions, activations) are not read. Errors:
// kInvalidArgument naming file and key; unknown presets name the nearest.
Result<ModelPreset> read_model(const std::string& name_or_path);

ModelSpec model_spec(const ModelConfig& config, const std::string& name);
// The configuration whose graph this is. Error: the spec has no family.
Result<ModelConfig> model_config(const ModelSpec& model);
// Parameters of the graph itself, built without data.
Result<int64_t> graph_params(const ModelSpec& model);

}  // namespace tegula::planner
