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
                       const std::vector<WeightSpec>& weights, const Store& store,
                       const std::string& data_sha256, int64_t step);

// Fills the store from it and returns the number of steps done. Learning rates, decay, clipping
// and data may differ, and a line in `notes` says so: the run goes on, but not with the bits of one
// that never stopped. Errors: a difference that makes it another run (model, optimizer, batch,
// seed, dtype), naming the first one.
Result<int64_t> load_training_state(const TrainConfig& config, const std::string& directory,
                                    const std::string& data_sha256, Store& store,
                                    std::vector<std::string>& notes);

}  // namespace tegula
