// config.json of a model: what is accepted has sizes that fit together, and is written and read the
// same.
#include "tegula/io/hf_config.h"
#include "tests/fuzz/target.h"

namespace tegula::fuzz {

namespace {
bool run(std::string_view input) {
  const auto config = parse_hf_config(input, "config.json");
  if (!config.ok()) return false;
  TEGULA_CHECK(check_hf_config(*config).ok());
  const auto again = parse_hf_config(format_hf_config(*config), "again");
  TEGULA_CHECK(again.ok() && *again == *config);
  return true;
}
}  // namespace

extern constinit const Target config_target{"config", run};

}  // namespace tegula::fuzz
