#include <cstdio>
#include <thread>

#include "cli/command.h"
#include "cli/machine.h"
#include "cli/paths.h"
#include "tegula/io/text_data.h"
#include "tools/rules/check/check.h"
#include "tools/rules/generate/generate.h"

namespace tegula::cli {

namespace {
struct Options {
  std::string out, file;
  int threads = 0;
  bool proves = false;
};

Status generate(const Options& o) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  const superopt::Generated g = superopt::generate_rules(o.threads > 0 ? o.threads : cores);
  TEGULA_TRY(write_result(o.out, g.text()));
  std::printf("%s\n", g.counts.text().c_str());
  return {};
}

Status check(const Options& o) {
  std::string text = TEGULA_TRY(read_text(input_path(o.file)));
  if (o.proves) {
    superopt::ProvenFile proven = TEGULA_TRY(superopt::prove_file(text, o.file));
    std::printf("%zu of %zu rules are of class exact\n", proven.n_exact, proven.n_rules);
    text = std::move(proven.text);
    if (!o.out.empty()) TEGULA_TRY(write_result(o.out, text));
  }
  const int n = TEGULA_TRY(rulecheck::check_rules(text, o.file));
  std::printf("%d rules, every proof holds\n", n);
  return {};
}
}  // namespace

Result<std::shared_ptr<const superopt::RuleSet>> read_rules(const std::string& file) {
  if (file.empty()) return std::shared_ptr<const superopt::RuleSet>();
  return superopt::read_rules(TEGULA_TRY(read_text(input_path(file))), file);
}

void add_rules(const Command& app, int& exit_code) {
  const auto rules = app.add_command("rules", "Rewrite rules of graphs, found and proven");
  rules.require_command();
  static Options o;
  const auto add = [&](const char* name, const char* doc, Status (*run)(const Options&)) {
    const auto cmd = rules.add_command(name, doc);
    cmd.callback([&exit_code, run] { exit_code = report(run(o)); });
    return cmd;
  };
  const auto made = add("generate", "Finds rules and proves them, for all sizes", generate);
  made.add_option("--out", o.out, "The rules with their proofs").required().type_name("FILE");
  add_threads(made, o.threads);
  const auto checked = add("check", "Replays every rule's proof", check);
  checked.add_option("FILE", o.file, "Rules; - for standard input").required().refuse_empty();
  const auto prove = checked.add_flag("--prove", o.proves, "Prove first what has no proof");
  checked.add_option("--out", o.out, "The rules with their proofs and classes, for --rules")
      .needs(prove)
      .type_name("FILE");
}

}  // namespace tegula::cli
