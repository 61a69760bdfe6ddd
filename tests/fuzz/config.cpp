// config.json of a model: what is accepted has sizes that fit together, and is written and read the
// same.
#include "tegula/models/checkpoint.h"
#include "tests/fuzz/target.h"

namespace tegula::fuzz {

namespace {
bool run(std::string_view input) {
  const auto config = parse_model_config(input, "config.json");
  if (!config.ok()) return false;
  ModelConfig again = *config;
  TEGULA_CHECK(again.resolve().ok() && again == *config);
  const auto back = parse_model_config(model_config_json(*config, DType::kF32), "again");
  TEGULA_CHECK(back.ok() && *back == *config);
  return true;
}
}  // namespace

extern constinit const Target config_target{"config", run};

}  // namespace tegula::fuzz
