// The command line: thin shells without logic. One subcommand a file.
#pragma once

#include "cli/flags.h"
#include "tegula/base/memory.h"
#include "tegula/base/result.h"

namespace tegula {
class Json;
}
namespace tegula::superopt {
class RuleSet;
}

namespace tegula::cli {

// Each adds its subcommand; the callback sets `exit_code`.
void add_bench(const Command& app, int& exit_code);
void add_train(const Command& app, int& exit_code);
void add_generate(const Command& app, int& exit_code);
void add_chat(const Command& app, int& exit_code);
void add_decode(const Command& app, int& exit_code);
void add_doctor(const Command& app, int& exit_code);
void add_eval(const Command& app, int& exit_code);
void add_embed(const Command& app, int& exit_code);
void add_encode(const Command& app, int& exit_code);
void add_grad(const Command& app, int& exit_code);
void add_ops(const Command& app, int& exit_code);
void add_pet(const Command& app, int& exit_code);
void add_models(const Command& app, int& exit_code);
void add_rules(const Command& app, int& exit_code);
void add_info(const Command& app, int& exit_code);
void add_convert(const Command& app, int& exit_code);
void add_completion(const Command& app, int& exit_code);
void add_tune(const Command& app, int& exit_code);
void add_plan(const Command& app, int& exit_code);

// `plan` is two commands: of a training step here, and, if a model stands behind it or a flag that
// only the second has, of a model on a cluster.
bool asks_about_model(const std::vector<std::string>& arguments);
void add_plan_model(const Command& app, int& exit_code);

// --tune off|quick|full and --tune-cache DIR.
void add_tuning(const Command& cmd, std::string& mode, std::string& directory);

// --superopt SECONDS and --rules FILE.
void add_superopt(const Command& cmd, double& seconds, std::string& rules);
// The rules of a file, whose proofs are replayed first; none where no file is given.
Result<std::shared_ptr<const superopt::RuleSet>> read_rules(const std::string& file);

// Prints the bytes that each rung of the matmul ladder reads for n × n matrices.
Status print_reads(int64_t n, bool as_json);

// Says on standard error which keys of a model's config.json nobody reads.
void note_on_model(const std::string& path);

// The exit code of a process: the table of docs/cli.md. A signal that ended a run is 128 + its
// number.
enum Exit : int { kDone = 0, kInput = 1, kUsage = 2, kEnvironment = 3 };

// Prints "tegula: error: …" on one line; returns the exit code: kEnvironment for what is no fault
// of what was asked (memory, disk, device, a bug), else `fault`.
int report(const Error& error, Exit fault = kInput);
// The same of what may have failed: kDone where it has not.
inline int report(const Status& done, Exit fault = kInput) {
  return done.ok() ? kDone : report(done.error(), fault);
}

// Prints it as one line of standard output.
void print_line(const Json& json);

}  // namespace tegula::cli
