// A TOML file of options: `--config FILE` becomes flags that stand before the others.
#pragma once

#include <string>
#include <vector>

#include "tegula/base/result.h"

namespace CLI {
class App;
}  // namespace CLI

namespace tegula::cli {

// The arguments with the first `--config FILE` (or --config=FILE) of `cmd` replaced by the file's
// keys, put right after the command's name: since the last flag wins, the command line wins over
// the file. Keys have the names of the flags (n-layers = 4); true sets a switch. Relative paths
// are relative to the working directory, as on the command line.
// Errors, naming file and line: what is no TOML, unknown keys, values that are no scalars.
Result<std::vector<std::string>> expand_config(CLI::App& app, std::vector<std::string> arguments);

// The option of `cmd` whose name is nearest to `name` ("--lauers" -> "--n-layers"), or "".
std::string nearest_flag(const CLI::App& cmd, const std::string& name);

}  // namespace tegula::cli
