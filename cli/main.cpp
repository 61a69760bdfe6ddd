#include <cstdio>

#include "cli/command.h"
#include "cli/config.h"
#include "cli/process.h"

namespace tegula::cli {

namespace {
// Another command that has this flag; "" if none has.
std::string owner_of(const Command& cmd, const std::string& flag) {
  if (cmd.find_flag(flag)) return cmd.full_name();
  for (const Command& sub : cmd.commands())
    if (std::string owner = owner_of(sub, flag); !owner.empty()) return owner;
  return "";
}

// Explains what does not belong on the command line: a flag before any other word.
std::string explain_extras(const Command& app, const Command& cmd,
                           const std::vector<std::string>& extras) {
  std::string flag = extras.front();
  for (const std::string& word : extras)
    if (word.starts_with('-') && word != "-") {
      flag = word.substr(0, word.find('='));
      break;
    }
  if (!flag.starts_with('-')) return cat("unexpected '", flag, "'");
  if (const std::string owner = owner_of(app, flag); !owner.empty())
    return cat("tegula ", cmd.full_name(), " has no use for ", flag, ", which is for tegula ",
               owner, ": leave it out (a --config file may hold it)");
  const std::string near = nearest_flag(cmd, flag);
  return cat("unknown flag '", flag, "'", near.empty() ? "" : cat(", did you mean ", near, "?"));
}

// Prompts and stop texts say themselves what is wrong with an empty one.
void refuse_empty_values(const Command& cmd) {
  for (const Flag& flag : cmd.flags())
    if (flag.takes_value() && flag.name() != "--prompt" && flag.name() != "--stop")
      flag.refuse_empty();
  for (const Command& sub : cmd.commands()) refuse_empty_values(sub);
}

// Explains what is wrong with what the user typed, in one line, with what to do.
int explain(const Command& tool, const Parsed& p) {
  const std::string name = p.command.full_name();
  std::string what = p.message;
  if (p.kind == Parsed::kNoCommand) {
    std::string commands;
    for (const Command& c : p.command.commands())
      commands += (commands.empty() ? "" : ", ") + c.name();
    what = cat(
        p.extras.empty() ? "a command is missing" : cat("unknown command '", p.extras.front(), "'"),
        ": choose one of ", commands);
  } else if (p.kind == Parsed::kExtras) {
    what = explain_extras(tool, p.command, p.extras);
  } else if (p.kind == Parsed::kNoValue) {
    what = cat(what.substr(0, what.find(':')), " needs a value");
  }
  std::fprintf(stderr, "tegula: error: %s; see tegula %s%s--help\n", printable(what).c_str(),
               name.c_str(), name.empty() ? "" : " ");
  return kUsage;
}

int run(int argc, char** argv) {
  const Command tool = make_tool("tegula", "Tegula compiles, plans, trains and runs transformers.",
                                 "tegula " TEGULA_VERSION);
  tool.require_command();
  tool.footer(
      "Exit codes: 0 done, 1 an input is at fault, 2 the command line is, 3 the machine is.");
  int exit_code = 0;
  const std::vector<std::string> given(argv + 1, argv + argc);
  for (auto* add :
       {add_train, add_generate, add_chat, asks_about_model(given) ? add_plan_model : add_plan,
        add_encode, add_decode, add_embed, add_eval, add_grad, add_bench, add_ops, add_pet,
        add_models, add_rules, add_info, add_convert, add_tune, add_doctor, add_completion})
    add(tool, exit_code);
  refuse_empty_values(tool);
  auto arguments = expand_config(tool, given);
  if (!arguments.ok())
    return report(arguments.error(), arguments.error().code == Code::kIo ? kInput : kUsage);
  const Parsed parsed = parse(tool, *arguments);
  if (parsed.kind != Parsed::kRan && parsed.kind != Parsed::kShown) return explain(tool, parsed);
  return finish_output(exit_code);
}
}  // namespace

int report(const Error& error, Exit fault) {
  std::fprintf(stderr, "tegula: error: %s\n", printable(error.message).c_str());
  switch (error.code) {
    case Code::kInvalidArgument:
    case Code::kUnsupported:
      return fault;
    case Code::kIo:
      return kInput;
    default:
      return kEnvironment;
  }
}

}  // namespace tegula::cli

int main(int argc, char** argv) {
  using namespace tegula::cli;
  prepare_process();
  try {
    return run(argc, argv);
  } catch (...) {
    return report_exception();
  }
}
