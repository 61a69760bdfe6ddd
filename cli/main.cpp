#include <cstdio>

#include "cli/command.h"
#include "cli/config.h"
#include "cli/process.h"

namespace tegula::cli {

namespace {
// The innermost command that was named.
const CLI::App& command_of(const CLI::App& app) {
  const CLI::App* cmd = &app;
  while (!cmd->get_subcommands().empty()) cmd = cmd->get_subcommands().front();
  return *cmd;
}

// Another command that has this flag; "" if none has.
std::string owner_of(const CLI::App& cmd, const std::string& flag) {
  if (cmd.get_option_no_throw(flag)) return full_name(cmd);
  for (const CLI::App* sub : cmd.get_subcommands([](const CLI::App*) { return true; }))
    if (std::string owner = owner_of(*sub, flag); !owner.empty()) return owner;
  return "";
}

// What does not belong on the command line: a flag before any other word.
std::string explain_extras(const CLI::App& app, const CLI::App& cmd,
                           const std::vector<std::string>& extras) {
  std::string flag = extras.front();
  for (const std::string& word : extras)
    if (word.starts_with('-') && word != "-") {
      flag = word.substr(0, word.find('='));
      break;
    }
  if (!flag.starts_with('-')) return cat("unexpected '", flag, "'");
  if (const std::string owner = owner_of(app, flag); !owner.empty())
    return cat("tegula ", full_name(cmd), " has no use for ", flag, ", which is for tegula ", owner,
               ": leave it out (a --config file may hold it)");
  const std::string near = nearest_flag(cmd, flag);
  return cat("unknown flag '", flag, "'", near.empty() ? "" : cat(", did you mean ", near, "?"));
}

// What the user typed, in one line, with what to do.
int explain(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& cmd = command_of(app);
  const std::string name = full_name(cmd);
  const auto type = static_cast<CLI::ExitCodes>(error.get_exit_code());
  const std::vector<std::string> extras =
      cmd.remaining().empty() ? app.remaining(true) : cmd.remaining();
  const auto subcommands = cmd.get_subcommands([](const CLI::App*) { return true; });
  std::string what = error.what();
  if (type == CLI::ExitCodes::RequiredError && !subcommands.empty()) {
    std::string commands;
    for (const CLI::App* c : subcommands)
      commands += (commands.empty() ? "" : ", ") + c->get_name();
    what =
        cat(extras.empty() ? "a command is missing" : cat("unknown command '", extras.front(), "'"),
            ": choose one of ", commands);
  } else if (!extras.empty()) {  // before what is missing or wrong: it may be the same, misspelt
    what = explain_extras(app, cmd, extras);
  } else if (type == CLI::ExitCodes::ArgumentMismatch) {
    what = cat(what.substr(0, what.find(':')), " needs a value");
  }
  std::fprintf(stderr, "tegula: error: %s; see tegula %s%s--help\n", what.c_str(), name.c_str(),
               name.empty() ? "" : " ");
  return kUsage;
}

int run(int argc, char** argv) {
  CLI::App app{"Tegula compiles, plans, trains and serves transformers.", "tegula"};
  app.require_subcommand(1);
  app.set_version_flag("--version", "tegula " TEGULA_VERSION);
  app.footer(
      "Exit codes: 0 done, 1 an input is at fault, 2 the command line is, 3 the machine is.");
  int exit_code = 0;
  const std::vector<std::string> given(argv + 1, argv + argc);
  for (auto* add : {add_train, add_generate, asks_about_model(given) ? add_plan_model : add_plan,
                    add_encode, add_grad, add_bench, add_ops, add_tune, add_doctor, add_completion})
    add(app, exit_code);
  auto arguments = expand_config(app, given);
  if (!arguments.ok())
    return report(arguments.error(), arguments.error().code == Code::kIo ? kInput : kUsage);
  try {
    app.parse(std::vector<std::string>(arguments->rbegin(), arguments->rend()));  // last one first
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() != 0) return explain(app, e);
    exit_code = app.exit(e);  // --help, --version
  }
  return finish_output(exit_code);
}
}  // namespace

int report(const Error& error, Exit fault) {
  std::fprintf(stderr, "tegula: error: %s\n", error.message.c_str());
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
