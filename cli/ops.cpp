#include <cstdio>

#include "cli/command.h"
#include "tegula/ir/opdef.h"
#include "tegula/ops/docs.h"

namespace tegula::cli {

void add_ops(CLI::App& app, int& exit_code) {
  auto* cmd = app.add_subcommand("ops", "List the table of ops");
  static bool markdown = false;
  cmd->add_flag("--markdown", markdown, "As docs/ops.md");
  cmd->callback([&exit_code] {
    if (markdown) {
      std::fputs(ops_markdown().c_str(), stdout);
    } else {
      for (const OpDef* op : all_ops())
        std::printf("%-24.*s %-12.*s %.*s\n", static_cast<int>(op->name.size()), op->name.data(),
                    static_cast<int>(op->group.size()), op->group.data(),
                    static_cast<int>(op->formula.size()), op->formula.data());
    }
    exit_code = 0;
  });
}

}  // namespace tegula::cli
