#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <string_view>

#include "cli/command.h"
#include "cli/config.h"

namespace tegula::cli {

namespace {
std::atomic<bool> stop{false};
volatile std::sig_atomic_t signal_number = 0;

// A second one, of either kind, does not wait for the step's end. A save in its middle is left as
// it is: it has no name yet, and the last checkpoint stays the last one.
void on_signal(int number) {
  constexpr std::string_view kFirst =
      "\nstopping after this step; once more to stop at once, without saving\n";
  constexpr std::string_view kSecond = "\nstopped at once; the last checkpoint stays\n";
  const bool is_second = stop.exchange(true);
  const std::string_view text = is_second ? kSecond : kFirst;
  (void)!::write(STDERR_FILENO, text.data(), text.size());
  if (is_second) ::_exit(128 + number);
  signal_number = number;
}

// What the user typed, in one line, with what to do.
int explain(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* cmd = &app;
  if (!app.get_subcommands().empty()) cmd = app.get_subcommands().front();
  const std::string help = cat("tegula ", cmd == &app ? "" : cmd->get_name() + " ", "--help");
  const auto type = static_cast<CLI::ExitCodes>(error.get_exit_code());
  std::string what = error.what();
  if (type == CLI::ExitCodes::ExtrasError) {
    const auto extras = cmd->remaining();
    std::string flag = extras.empty() ? app.remaining(true).front() : extras.front();
    for (const std::string& word : extras)
      if (word.starts_with('-')) {
        flag = word.substr(0, word.find('='));
        break;
      }
    const std::string near = flag.starts_with('-') ? nearest_flag(*cmd, flag) : "";
    what = cat(flag.starts_with('-') ? "unknown flag '" : "unexpected '", flag, "'",
               near.empty() ? "" : cat(", did you mean ", near, "?"));
  } else if (type == CLI::ExitCodes::RequiredError && cmd == &app) {
    std::string commands;
    for (const CLI::App* c : app.get_subcommands([](const CLI::App*) { return true; }))
      commands += (commands.empty() ? "" : ", ") + c->get_name();
    const auto extras = app.remaining();
    what =
        cat(extras.empty() ? "a command is missing" : cat("unknown command '", extras.front(), "'"),
            ": choose one of ", commands);
  } else if (type == CLI::ExitCodes::ArgumentMismatch) {
    what = cat(what.substr(0, what.find(':')), " needs a value");
  }
  std::fprintf(stderr, "tegula: error: %s; see %s\n", what.c_str(), help.c_str());
  return 2;
}
}  // namespace

std::atomic<bool>& stop_requested() { return stop; }
int stop_signal() { return signal_number; }
void catch_stop_signals() {
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
}

int report(const Error& error) {
  std::fprintf(stderr, "tegula: error: %s\n", error.message.c_str());
  return error.code == Code::kInvalidArgument || error.code == Code::kUnsupported ? 2 : 1;
}

}  // namespace tegula::cli

int main(int argc, char** argv) {
  using namespace tegula::cli;
  CLI::App app{"Tegula compiles, plans, trains and serves transformers.", "tegula"};
  app.require_subcommand(1);
  app.set_version_flag("--version", "tegula " TEGULA_VERSION);
  int exit_code = 0;
  add_train(app, exit_code);
  add_generate(app, exit_code);
  add_plan(app, exit_code);
  add_encode(app, exit_code);
  add_grad(app, exit_code);
  add_bench(app, exit_code);
  add_ops(app, exit_code);
  add_tune(app, exit_code);
  add_doctor(app, exit_code);
  auto arguments = expand_config(app, {argv + 1, argv + argc});
  if (!arguments.ok()) return report(arguments.error());
  try {
    app.parse(std::vector<std::string>(arguments->rbegin(), arguments->rend()));  // last one first
  } catch (const CLI::ParseError& e) {
    return e.get_exit_code() == 0 ? app.exit(e) : explain(app, e);  // 0: --help, --version
  }
  // Results on a full disk or a closed pipe are lost: say so.
  if (std::fflush(stdout) != 0 || std::ferror(stdout)) {
    std::fprintf(stderr, "tegula: error: cannot write all of the output: is the disk full?\n");
    return exit_code ? exit_code : 1;
  }
  return exit_code;
}
