// TOML of options: an accepted file becomes flags of the command, whatever stands in it.
#include "cli/config.h"
#include "tests/fuzz/target.h"

namespace tegula::fuzz {

namespace {

cli::Command with_flags(const cli::Command& tool) {
  static std::string config, data, mode;
  static int64_t layers = 0;
  static double lr = 0;
  static bool has_bias = false;
  const cli::Command train = tool.add_command("train", "");
  train.add_option("--config", config, "");
  train.add_option("--data", data, "");
  train.add_option("--mode", mode, "");
  train.add_option("--n-layers", layers, "");
  train.add_option("--lr", lr, "");
  train.add_flag("--bias", has_bias, "");
  return train;
}

bool run(std::string_view input) {
  const std::string path = scratch() + "/run.toml";
  put(path, input);
  static const cli::Command tool = cli::make_tool("tegula", "", "");
  [[maybe_unused]] static const cli::Command train = with_flags(tool);
  const auto arguments = cli::expand_config(tool, {"train", "--config", path, "--data", "mine"});
  if (!arguments.ok()) {
    TEGULA_CHECK(arguments.error().message.find('\n') == std::string::npos);
    return false;
  }
  TEGULA_CHECK(arguments->size() >= 3 && arguments->front() == "train");
  TEGULA_CHECK(arguments->back() == "mine");  // the command line wins
  return true;
}

}  // namespace

extern constinit const Target toml_target{"toml", run};

}  // namespace tegula::fuzz
