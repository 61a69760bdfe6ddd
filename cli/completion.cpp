// tegula completion: the table of commands and flags as a shell reads it.
#include <cstdio>

#include "cli/command.h"
#include "tegula/base/text.h"

namespace tegula::cli {

namespace {
// A flag as shells offer it. Options whose type is "a|b|c" take one of these words.
struct ShellFlag {
  std::string name, doc, words;
  bool takes_value = false, takes_path = false;
};

std::vector<ShellFlag> flags(const Command& cmd) {
  std::vector<ShellFlag> all;
  for (const Flag& flag : cmd.flags()) {
    if (flag.long_name().empty()) continue;
    ShellFlag f{flag.long_name(), flag.doc(), "", flag.takes_value()};
    const std::string type = f.takes_value ? flag.type() : "";
    f.takes_path = type.find("FILE") != type.npos || type.find("DIR") != type.npos;
    if (!f.takes_path && type.find('|') != type.npos) {
      f.words = type;
      for (char& c : f.words)
        if (c == '|') c = ' ';
    }
    all.push_back(std::move(f));
  }
  return all;
}

// Every command with the words that lead to it: "", "train", "bench", "bench gemm", …
template <class F>
void for_each_command(const Command& cmd, F&& visit) {
  visit(cmd);
  for (const Command& sub : cmd.commands()) for_each_command(sub, visit);
}

std::string quoted(std::string text) {  // for single quotes, in all three shells' common subset
  std::string out;
  for (char c : text) out += c == '\'' ? "’" : std::string(1, c);
  return out;
}

std::string names_of_commands(const Command& cmd) {
  return joined(cmd.commands(), " ", [](const Command& sub) { return sub.name(); });
}

// bash: what may follow depends on the command so far and on the word before.
std::string bash(const Command& app) {
  std::string by_command, by_flag;
  for_each_command(app, [&](const Command& cmd) {
    std::string words = names_of_commands(cmd);
    const std::string name = cmd.full_name();
    const bool has_commands = !words.empty();  // then these are what may follow
    for (const ShellFlag& f : flags(cmd)) {
      if (!has_commands) words += cat(" --", f.name);
      const std::string at = cat("    '", name, " --", f.name, "') ");
      if (f.takes_path)
        by_flag += cat(at, "COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n");
      else if (f.takes_value)
        by_flag += cat(at, "COMPREPLY=($(compgen -W '", f.words, "' -- \"$word\")); return ;;\n");
    }
    by_command += cat("    '", name, "') words='", words, "' ;;\n");
  });
  return cat(
      "# bash: source <(tegula completion bash), or save it where bash-completion looks\n"
      "_tegula() {\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} last=${COMP_WORDS[COMP_CWORD-1]} command= words= "
      "each\n"
      "  COMPREPLY=()\n"
      "  for each in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
      "    [[ $each == -* ]] && break\n"
      "    command=\"${command:+$command }$each\"\n"
      "  done\n"
      "  case \"$command $last\" in\n",
      by_flag, "  esac\n  case \"$command\" in\n", by_command,
      "  esac\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
      "}\n"
      "complete -o filenames -F _tegula tegula\n");
}

// zsh: one function a command; _arguments knows flags, values and files.
std::string zsh(const Command& app) {
  std::string functions;
  for_each_command(app, [&](const Command& cmd) {
    std::string name = cmd.full_name();
    for (char& c : name)
      if (c == ' ') c = '_';
    const std::string prefix = cat("_tegula", name.empty() ? "" : "_", name);
    functions += cat(prefix, "() {\n  _arguments -C");
    for (const ShellFlag& f : flags(cmd)) {
      std::string doc;
      for (char c : f.doc) doc += c == '[' || c == ']' || c == ':' ? ' ' : c;
      functions += cat(" \\\n    '--", f.name, "[", quoted(doc), "]",
                       !f.takes_value    ? ""
                       : f.takes_path    ? ":path:_files"
                       : f.words.empty() ? ":value:"
                                         : cat(":value:(", f.words, ")"),
                       "'");
    }
    const std::string names = names_of_commands(cmd);
    if (!names.empty())
      functions += cat(" \\\n    '1:command:(", names,
                       ")' \\\n    '*::argument:->rest'\n  [[ $state == rest"
                       " ]] && ",
                       prefix, "_${words[1]}");
    functions += "\n}\n";
  });
  return cat("#compdef tegula\n# zsh: tegula completion zsh > a folder of $fpath, as _tegula\n",
             functions, "_tegula \"$@\"\n");
}

// fish: one line a flag, on the condition that its command was typed.
std::string fish(const Command& app) {
  std::string lines =
      "# fish: tegula completion fish > ~/.config/fish/completions/tegula.fish\n"
      "complete -c tegula -f\n";
  for_each_command(app, [&](const Command& cmd) {
    const std::string names = names_of_commands(cmd);
    std::string condition = "true";
    for (Command at = cmd; at.parent(); at = at.parent())
      condition += cat("; and __fish_seen_subcommand_from ", at.name());
    if (!names.empty())
      lines += cat("complete -c tegula -n '", condition, "; and not __fish_seen_subcommand_from ",
                   names, "' -a '", names, "'\n");
    for (const ShellFlag& f : flags(cmd))
      lines +=
          cat("complete -c tegula -n '", condition, "' -l ", f.name,
              !f.takes_value ? ""
              : f.takes_path ? " -r -F"
                             : " -x",
              f.words.empty() ? "" : cat(" -a '", f.words, "'"), " -d '", quoted(f.doc), "'\n");
  });
  return lines;
}
}  // namespace

void add_completion(const Command& app, int& exit_code) {
  const auto cmd =
      app.add_command("completion", "Print what makes a shell complete these commands");
  cmd.require_command();
  using Write = std::string (*)(const Command&);
  for (const auto& [name, write] :
       {std::pair<const char*, Write>{"bash", bash}, {"zsh", zsh}, {"fish", fish}}) {
    const auto shell = cmd.add_command(name, cat("For ", name));
    shell.callback([app, &exit_code, write = write] {
      std::fputs(write(app).c_str(), stdout);
      exit_code = kDone;
    });
  }
}

}  // namespace tegula::cli
