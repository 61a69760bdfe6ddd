// The command line: thin shells without logic. One subcommand a file.
#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <cmath>
#include <string>
#include <vector>

#include "tegula/base/result.h"

namespace tegula::cli {

// Each adds its subcommand; the callback sets `exit_code`.
void add_bench(CLI::App& app, int& exit_code);
void add_train(CLI::App& app, int& exit_code);
void add_generate(CLI::App& app, int& exit_code);
void add_doctor(CLI::App& app, int& exit_code);
void add_encode(CLI::App& app, int& exit_code);
void add_grad(CLI::App& app, int& exit_code);
void add_ops(CLI::App& app, int& exit_code);
void add_completion(CLI::App& app, int& exit_code);
void add_tune(CLI::App& app, int& exit_code);
void add_plan(CLI::App& app, int& exit_code);

// `plan` is two commands: of a training step here, and, if a model stands behind it or a flag that
// only the second has, of a model on a cluster.
bool asks_about_model(const std::vector<std::string>& arguments);
void add_plan_model(CLI::App& app, int& exit_code);

// Options with their defaults shown, whose errors say what is allowed: whole numbers, finite
// numbers, one of some names.
inline constexpr int64_t kMany = int64_t{1} << 40;
CLI::Option* whole(CLI::Option* option, int64_t low, int64_t high = kMany);
CLI::Option* real(CLI::Option* option, double low, double high = HUGE_VAL);
CLI::Option* one_of(CLI::Option* option, std::vector<std::string> names);

// --tune off|quick|full and --tune-cache DIR.
void add_tuning(CLI::App& cmd, std::string& mode, std::string& directory);

// What each rung of the matmul ladder reads for n × n matrices.
Status print_reads(int64_t n, bool as_json);

// What a process ends with; the table of docs/cli.md. A signal that ended a run is 128 + its
// number.
enum Exit : int { kDone = 0, kInput = 1, kUsage = 2, kEnvironment = 3 };

// Prints "tegula: error: …" on one line; returns the exit code: kEnvironment for what is no fault
// of what was asked (memory, disk, device, a bug), else `fault`.
int report(const Error& error, Exit fault = kInput);

// "bench train": the name of a command with those above it.
std::string full_name(const CLI::App& cmd);

}  // namespace tegula::cli
