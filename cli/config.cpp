#include "cli/config.h"

#define TOML_ENABLE_FORMATTERS 0
#define TOML_ENABLE_UNRELEASED_FEATURES 0
#include <toml++/toml.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <numeric>

#include "tegula/base/str.h"
#include "tegula/io/file.h"

namespace tegula::cli {

namespace {

// Levenshtein's distance.
size_t distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, change});
    }
  }
  return row.back();
}

std::string suggestion(const CLI::App& cmd, const std::string& name) {
  const std::string near = nearest_flag(cmd, name);
  return near.empty() ? "" : cat("; did you mean ", near.substr(2), "?");
}

// The text that the flag would have on a command line.
Result<std::string> flag_value(const toml::node& node, const std::string& at) {
  if (const auto s = node.value_exact<std::string>()) return *s;
  if (const auto i = node.value_exact<int64_t>()) return cat(*i);
  if (const auto d = node.value_exact<double>()) {
    char text[32];
    std::snprintf(text, sizeof text, "%.17g", *d);
    return std::string(text);
  }
  return invalid_argument(at + ": must be a number, a text or true/false");
}

// How deep a key or a value is nested at most, by the text alone: the parser and its tables are
// recursive. A line of that depth is refused; strings and comments do not count.
Status check_depth(std::string_view text, const std::string& path) {
  constexpr int64_t kMost = 100;
  int64_t line = 1, depth = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '\n') {
      ++line, depth = 0;
    } else if (c == '#') {
      at = std::min(text.find('\n', at), text.size()) - 1;
    } else if (c == '"' || c == '\'') {
      const std::string triple(3, c);
      const bool is_long = text.substr(at).starts_with(triple);
      for (at += is_long ? 3 : 1; at < text.size(); ++at) {
        if (c == '"' && text[at] == '\\')
          ++at;
        else if (is_long ? text.substr(at).starts_with(triple) : text[at] == c || text[at] == '\n')
          break;
        line += text[at] == '\n';
      }
      if (is_long)
        at += 2;
      else if (at < text.size() && text[at] == '\n')
        --at;  // a broken string, which the parser will tell
    } else if ((c == '.' || c == '[' || c == '{') && ++depth > kMost) {
      return invalid_argument(
          cat(path, ":", line, ": is nested more than ", kMost, " levels deep"));
    }
  }
  return {};
}

Result<std::vector<std::string>> read_config(const CLI::App& cmd, const std::string& path) {
  const std::string text = TEGULA_TRY(read_file(path));
  TEGULA_TRY(check_depth(text, path));
  toml::table table;
  try {
    table = toml::parse(text, path);
  } catch (const toml::parse_error& e) {
    return invalid_argument(cat(path, ":", e.source().begin.line, ": ", e.description()));
  }
  std::vector<std::string> flags;
  for (auto&& [k, node] : table) {
    const std::string key(k.str());
    const std::string at = cat(path, ":", k.source().begin.line, ": ", key);
    if (!cmd.get_option_no_throw("--" + key) || key == "config" || key == "help")
      return invalid_argument(cat(at, ": no option of tegula ", cmd.get_name(), " has this name",
                                  suggestion(cmd, "--" + key)));
    if (const auto on = node.value_exact<bool>()) {
      if (*on) flags.push_back("--" + key);
    } else {
      // One word, so that a negative number is not taken for a flag; but after "--key=" the parser
      // would take the next word for the value.
      const std::string value = TEGULA_TRY(flag_value(node, at));
      if (value.empty())
        flags.insert(flags.end(), {"--" + key, value});
      else
        flags.push_back(cat("--", key, "=", value));
    }
  }
  return flags;
}

}  // namespace

std::string nearest_flag(const CLI::App& cmd, const std::string& name) {
  std::string best;
  size_t least = std::max<size_t>(2, name.size() / 3) + 1;
  for (const CLI::Option* o : cmd.get_options())
    for (const std::string& candidate : o->get_lnames()) {
      // n_layers and d_model are what papers and configs write.
      std::string flat = name;
      std::replace(flat.begin(), flat.end(), '_', '-');
      const size_t d = distance(flat, "--" + candidate);
      if (d < least) least = d, best = "--" + candidate;
    }
  return best;
}

Result<std::vector<std::string>> expand_config(CLI::App& app, std::vector<std::string> arguments) {
  const CLI::App* cmd = nullptr;
  for (const CLI::App* c : app.get_subcommands([](CLI::App*) { return true; }))
    if (!arguments.empty() && c->get_name() == arguments[0]) cmd = c;
  if (!cmd || !cmd->get_option_no_throw("--config")) return arguments;
  for (size_t i = 1; i < arguments.size(); ++i) {
    std::string path;
    size_t words = 1;
    if (arguments[i] == "--config" && i + 1 < arguments.size())
      path = arguments[i + 1], words = 2;
    else if (arguments[i].starts_with("--config="))
      path = arguments[i].substr(9);
    else
      continue;
    const auto flags = TEGULA_TRY(read_config(*cmd, path));
    const auto at = arguments.begin() + static_cast<int64_t>(i);
    arguments.erase(at, at + static_cast<int64_t>(words));
    arguments.insert(arguments.begin() + 1, flags.begin(), flags.end());
    break;
  }
  return arguments;
}

}  // namespace tegula::cli
