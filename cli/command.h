// The command line: thin shells without logic. One subcommand a file.
#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <string>

#include "tegula/base/result.h"

namespace tegula::cli {

// Each adds its subcommand; the callback sets `exit_code`.
void add_train(CLI::App& app, int& exit_code);
void add_generate(CLI::App& app, int& exit_code);
void add_ops(CLI::App& app, int& exit_code);
void add_plan(CLI::App& app, int& exit_code);

// Prints "tegula: error: …" on one line; returns the exit code (2 for a user's mistake, else 1).
int report(const Error& error);

// Set by SIGINT and SIGTERM (once; a second signal ends the process); which one, 0 if none.
std::atomic<bool>& stop_requested();
int stop_signal();
void catch_stop_signals();

}  // namespace tegula::cli
