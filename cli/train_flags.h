// The flags that say what to train, shared by train and plan.
#pragma once

#include <string>

#include "tegula/train/config.h"

namespace CLI {
class App;
}  // namespace CLI

namespace tegula::cli {

struct TrainFlags {
  TrainConfig config;
  int64_t depth = 0;
  std::string memory;  // "512MiB"

  void add_to(CLI::App& cmd, bool needs_data = true);
  // The flags with --depth and --memory applied. Errors name the flag.
  Result<TrainConfig> resolve() const;

 private:
  CLI::App* cmd_ = nullptr;
};

// "512MiB", "2GB", "1000000" -> bytes.
Result<int64_t> parse_bytes(const std::string& text);

}  // namespace tegula::cli
