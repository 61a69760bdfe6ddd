// The flags that say what to train, shared by train and by what plans, times or tunes its step.
#pragma once

#include <string>

#include "cli/flags.h"
#include "tegula/train/config.h"

namespace tegula::cli {

// The command decides which of the flags it has: all of them; those that decide what a step is,
// with or without the text that decides the vocabulary; those that decide what decoding a token
// is.
enum class Purpose { kTrain, kPlan, kStep, kToken };

struct TrainFlags {
  TrainConfig config;
  int64_t depth = 0;
  std::string device_memory, memory;  // "512MiB"
  std::string mesh;                   // "dp=2,tp=2"
  int64_t ranks = 0;                  // 0: as many as the mesh has, or one

  // A value that cannot be, alone or together, ends the parsing of the command line.
  void add_to(const Command& cmd, Purpose purpose);
  // The flags with --depth and --memory applied. Errors name the flag.
  Result<TrainConfig> resolve() const;
  // Keys of the --config file that a model of this family has no use for.
  std::vector<std::string> notes(const ModelConfig& model) const;

 private:
  bool is_given(const std::string& flag) const;
  Status check_model(const ModelDef& model, const std::string& whose) const;
  Status check_origin() const;
  Status check_together(const TrainConfig& c) const;
  Status resolve_processes(TrainConfig& c) const;
  Status check_processes(const TrainConfig& c) const;
  Result<Mesh> resolve_mesh() const;
  Status resolve_context(TrainConfig& c) const;
  Command cmd_;
};

}  // namespace tegula::cli
