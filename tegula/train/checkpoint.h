// Saving and resuming a run: a model directory in Hugging Face form, plus optimizer state and where
// the run stands.
#pragma once

#include "tegula/io/tokenizer.h"
#include "tegula/runtime/store.h"
#include "tegula/train/config.h"

namespace tegula {

// Saves step `step` of the run under config.out (see io/checkpoint.h for the layout and what it
// survives).
Status save_checkpoint(const TrainConfig& config, const Tokenizer& tokenizer,
                       const std::vector<WeightSpec>& weights, const Store& store, int64_t step);

// The directory of the latest good checkpoint to resume from. Error: there is none.
Result<std::string> resume_directory(const TrainConfig& config);

// Fills the store from it and returns the number of steps done. Errors: the run's model or
// optimizer differ from the flags', naming the first difference.
Result<int64_t> load_training_state(const TrainConfig& config, const std::string& directory,
                                    Store& store);

}  // namespace tegula
