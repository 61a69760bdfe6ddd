// A TOML file of options: `--config FILE` becomes flags that stand before the others.
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cli/flags.h"
#include "tegula/base/result.h"

namespace tegula::cli {

// The arguments with the keys of `--config FILE` (or --config=FILE) as flags right after the
// command's name, and the flag itself behind them: since the last flag wins, the command line wins
// over the file. Keys have the names of the flags (n-layers = 4); true sets a switch. A file may
// serve several commands: keys that only `tegula train` has are left out for others. Relative paths
// are relative to the working directory, as on the command line.
// Errors, naming file and line: what is no TOML, unknown keys, values that are no scalars.
Result<std::vector<std::string>> expand_config(const Command& app,
                                               std::vector<std::string> arguments);

// A TOML file of tables of numbers and texts, in the order of the file. Errors, naming file and
// line: what is no TOML, keys outside of a table, values that are neither.
struct TomlTable {
  std::string name;
  std::vector<std::pair<std::string, std::variant<double, std::string>>> entries;
};
Result<std::vector<TomlTable>> read_tables(const std::string& path);

// Whether the flag stands on the command line itself, not only in a --config file.
bool is_on_command_line(const Command& cmd, const std::string& flag);

// The file that --config named; "": none.
std::string config_file(const Command& cmd);

// The option of `cmd` whose name is nearest to `name` ("--lauers" -> "--n-layers"), or "".
std::string nearest_flag(const Command& cmd, const std::string& name);

}  // namespace tegula::cli
