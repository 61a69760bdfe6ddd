// Saving and resuming a run: a model directory in Hugging Face form, plus optimizer state and where
// the run stands.
#pragma once

#include <set>

#include "tegula/io/file.h"
#include "tegula/models/model_files.h"
#include "tegula/runtime/store.h"
#include "tegula/text/tokenizer.h"
#include "tegula/train/config.h"

namespace tegula {

// SHA-256 of the text, and of the file of --batches ("": there is none).
struct DataHashes {
  std::string text, batches;
};

// The small files of the model that a run trains, by name: config.json, the tokenizer and, where it
// goes on from another model (null: it does not), what stands beside that. What was there stays,
// but for what the run changes.
Result<std::vector<TextFile>> model_texts(const TrainConfig& config, const Tokenizer& tokenizer,
                                          const ModelFiles* from);

// trainer_state.json.
std::string trainer_state(const TrainConfig& config, const DataHashes& hashes, int64_t step);
// The settings in it, by name.
std::vector<std::pair<std::string, std::string>> run_settings(const TrainConfig& config,
                                                              const DataHashes& hashes);

// Saves step `step` of the run under config.out (see io/checkpoint.h for the layout and what it
// survives), whose lock the run holds; the checkpoint's directory.
Result<std::string> save_checkpoint(const TrainConfig& config, const FileLock& lock,
                                    const std::vector<TextFile>& texts,
                                    const std::vector<WeightSpec>& weights, const Store& store,
                                    const DataHashes& hashes, int64_t step);

// For --resume and --init-from. Makes config.model the checkpoint's: what was not said is taken
// over, and so is the name of the tokenizer, which stays that of the checkpoint in any case (a line
// in `notes` says so where another was asked for). Dropout may change. Errors: a size of the model
// that was said otherwise.
Status take_model_of(const ModelFiles& files, TrainConfig& config, std::vector<std::string>& notes);

// A new run begins with the weights of `from` (null: there is none), random ones for the
// rest, which `notes` name if there was a model to start from. Each store gets its shares.
Status start_weights(const TrainConfig& config, const ModelFiles* from,
                     const std::vector<WeightSpec>& weights, std::span<Store* const> stores,
                     ThreadPool& pool, std::vector<std::string>& notes);

// Fills the stores from it and returns the number of steps done. Learning rates and their schedule,
// decay, clipping, dropout and data may differ, and a line in `notes` says so: the run goes on, but
// not with the bits of one that never stopped. Errors: a difference that makes it another run
// (optimizer, batch, seed, dtype), naming the first one; weights or state that are not this run's.
// `elsewhere`: of its state, what other ranks alone may hold.
Result<int64_t> load_training_state(const TrainConfig& config, const ModelFiles& files,
                                    const DataHashes& hashes, std::span<Store* const> stores,
                                    std::vector<std::string>& notes,
                                    const std::set<std::string, std::less<>>& elsewhere = {});

}  // namespace tegula
