#include "cli/config.h"

#include <stdexcept>

#define TOML_ENABLE_FORMATTERS 0
#define TOML_ENABLE_UNRELEASED_FEATURES 0
// Some broken files lead the parser (3.3) to its own assertions: they refuse the file, in every
// build.
namespace tegula::cli {
constexpr void require(bool holds) {
  if (!holds) throw std::logic_error("this is no TOML");
}
}  // namespace tegula::cli
#pragma push_macro("NDEBUG")
#undef NDEBUG
#define TOML_ASSERT(expr) ::tegula::cli::require(static_cast<bool>(expr))
#include <toml++/toml.h>
#pragma pop_macro("NDEBUG")

#include <CLI/CLI.hpp>
#include <algorithm>
#include <numeric>

#include "cli/command.h"
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

// What the parser must not see, told by the text alone. It is recursive, and so are its tables: a
// line that nests deeply is refused. And where it looks for blanks, some letters beyond ASCII lead
// it (3.3) to code that its authors took for unreachable: outside of strings and comments TOML has
// none, and behind a line of a string that ends in a backslash they are refused, too. So are
// control characters, which TOML has nowhere.
Status check_text(std::string_view text, const std::string& path) {
  constexpr int64_t kMost = 100;
  int64_t line = 1, depth = 0;
  for (const char c : text) {
    line += c == '\n';
    if ((c >= 0 && c < ' ' && c != '\t' && c != '\n' && c != '\r') || c == 127)
      return invalid_argument(cat(path, ":", line, ": a control character (byte ", int{c},
                                  ") stands there, which TOML has nowhere"));
  }
  line = 1;
  const auto is_ascii = [&](size_t i) { return i >= text.size() || (text[i] & 0x80) == 0; };
  const auto stray = [&] {
    return invalid_argument(
        cat(path, ":", line, ": a letter beyond ASCII stands outside of quotes"));
  };
  for (size_t at = text.starts_with("\xef\xbb\xbf") ? 3 : 0; at < text.size(); ++at) {
    const char c = text[at];
    if (!is_ascii(at)) return stray();
    if (c == '\n') {
      ++line, depth = 0;
    } else if (c == '#') {
      at = std::min(text.find('\n', at), text.size()) - 1;
    } else if (c == '"' || c == '\'') {
      const std::string triple(3, c);
      const bool is_long = text.substr(at).starts_with(triple);
      for (at += is_long ? 3 : 1; at < text.size(); ++at) {
        if (c == '"' && text[at] == '\\') {
          const size_t next = text.find_first_not_of(" \t\r\n", ++at);
          if (is_long && next > at && !is_ascii(next)) return stray();
        } else if (is_long ? text.substr(at).starts_with(triple)
                           : text[at] == c || text[at] == '\n') {
          break;
        }
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

// What the parser saw may be a line's end.
std::string on_one_line(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : std::string(1, c);
  return out;
}

Result<std::vector<std::string>> read_config(const CLI::App& app, const CLI::App& cmd,
                                             const std::string& path) {
  const std::string text = TEGULA_TRY(read_file(path));
  TEGULA_TRY(check_text(text, path));
  const CLI::App* train = app.get_subcommand("train");
  toml::table table;
  try {
    table = toml::parse(text, path);
  } catch (const toml::parse_error& e) {
    return invalid_argument(
        cat(path, ":", e.source().begin.line, ": ", on_one_line(e.description())));
  } catch (const std::logic_error& e) {
    return invalid_argument(cat(path, ": ", e.what()));
  }
  std::vector<std::string> flags;
  for (auto&& [k, node] : table) {
    const std::string key(k.str());
    const std::string at = cat(path, ":", k.source().begin.line, ": ", key);
    const bool is_ours = cmd.get_option_no_throw("--" + key) != nullptr;
    if ((!is_ours && !train->get_option_no_throw("--" + key)) || key == "config" || key == "help")
      return invalid_argument(cat(at, ": no option of tegula ", full_name(cmd), " has this name",
                                  suggestion(cmd, "--" + key)));
    if (const auto on = node.value_exact<bool>()) {
      if (*on && is_ours) flags.push_back("--" + key);
      continue;
    }
    // One word, so that a negative number is not taken for a flag; but after "--key=" the parser
    // would take the next word for the value.
    const std::string value = TEGULA_TRY(flag_value(node, at));
    if (!is_ours) continue;
    if (value.empty())
      flags.insert(flags.end(), {"--" + key, value});
    else
      flags.push_back(cat("--", key, "=", value));
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

Result<std::vector<std::string>> expand_config(const CLI::App& app,
                                               std::vector<std::string> arguments) {
  const CLI::App* cmd = &app;
  size_t words = 0;  // of the command's name: bench train
  while (words < arguments.size()) {
    const auto subcommands = cmd->get_subcommands([](const CLI::App*) { return true; });
    const auto named = std::find_if(subcommands.begin(), subcommands.end(), [&](const CLI::App* c) {
      return c->get_name() == arguments[words];
    });
    if (named == subcommands.end()) break;
    cmd = *named, ++words;
  }
  if (!cmd->get_option_no_throw("--config")) return arguments;
  std::string path;
  for (size_t i = words; i < arguments.size();) {
    const bool is_apart = arguments[i] == "--config" && i + 1 < arguments.size();
    if (!is_apart && !arguments[i].starts_with("--config=")) {
      ++i;
      continue;
    }
    if (!path.empty())
      return invalid_argument(cat("--config is given twice: put both into one file"));
    path = is_apart ? arguments[i + 1] : arguments[i].substr(9);
    const auto at = arguments.begin() + static_cast<int64_t>(i);
    arguments.erase(at, at + (is_apart ? 2 : 1));
  }
  if (path.empty()) return arguments;
  auto flags = TEGULA_TRY(read_config(app, *cmd, path));
  flags.push_back("--config=" + path);
  arguments.insert(arguments.begin() + static_cast<int64_t>(words), flags.begin(), flags.end());
  return arguments;
}

std::string config_file(const CLI::App& cmd) {
  const CLI::Option* option = cmd.get_option_no_throw("--config");
  return option && option->count() > 0 ? option->results().back() : "";
}

bool is_on_command_line(const CLI::App& cmd, const std::string& flag) {
  const CLI::Option* option = cmd.get_option_no_throw(flag);
  const CLI::Option* config = cmd.get_option_no_throw("--config");
  const auto& order = cmd.parse_order();
  // What a file says stands before --config: see expand_config.
  const auto end_of_file = std::find(order.begin(), order.end(), config);
  const auto begin = end_of_file == order.end() ? order.begin() : end_of_file;
  return std::find(begin, order.end(), option) != order.end();
}

}  // namespace tegula::cli
