#include <csignal>
#include <cstdio>
#include <cstring>

#include "cli/command.h"

namespace tegula::cli {

namespace {
std::atomic<bool> stop{false};
volatile std::sig_atomic_t signal_number = 0;

void on_signal(int number) {
  signal_number = number;
  stop.store(true);
  std::signal(number, SIG_DFL);
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
  CLI::App app{"Tegula compiles, plans, trains and serves transformers."};
  app.require_subcommand(1);
  app.set_version_flag("--version", "tegula " TEGULA_VERSION);
  int exit_code = 0;
  add_train(app, exit_code);
  add_generate(app, exit_code);
  add_plan(app, exit_code);
  add_ops(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help, --version
    std::fprintf(stderr, "tegula: error: %s; see tegula --help\n", e.what());
    return 2;
  }
  return exit_code;
}
