// SharedSave: a checkpoint that ranks write together.
#pragma once

#include <map>
#include <optional>
#include <set>

#include "tegula/io/checkpoint.h"
#include "tegula/train/checkpoint.h"

namespace tegula {

// A checkpoint (checkpoint.h) written by several ranks at once, of which each holds shares: each
// writes its own into files that the first process makes and publishes, and nobody holds a copy of
// the whole.
class SharedSave {
 public:
  // The optimizer's state by name, whole.
  using State = std::map<std::string, Type, std::less<>>;
  // All processes plan the same files.
  static Result<SharedSave> plan(const TrainConfig& config, const std::vector<WeightSpec>& weights,
                                 const State& state);
  // By the first process alone: makes the files. What the others need to know of them.
  Result<std::string> begin(const TrainConfig& config, const FileLock& lock, int64_t step);
  // By each other process, of what begin() gave.
  void join(std::string_view begun);
  // By each rank, once all processes know the files: what of its store it is to write.
  Status write(const Store& store, bool (*is_written)(const void* context, std::string_view name),
               const void* context) const;
  // By the first process, once all have written; the checkpoint's directory.
  Result<std::string> publish(const TrainConfig& config, const std::vector<TextFile>& texts,
                              const DataHashes& hashes, int64_t step);

 private:
  Status write_weight(SharedSafetensors::Writer& out, const std::string& name,
                      const TensorPart& part) const;
  const TrainConfig* config_ = nullptr;
  SharedSafetensors model_, state_;
  std::vector<NamedTensor> constants_;  // what the format wants besides
  std::vector<std::vector<float>> zeros_;
  std::set<std::string, std::less<>> is_weight_;
  CheckpointWriter::Shared model_at_, state_at_;
  std::optional<CheckpointWriter> writer_;
};

}  // namespace tegula
