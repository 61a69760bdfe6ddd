#include <cstdio>

#include "cli/command.h"
#include "tegula/io/json.h"
#include "tegula/ir/opdef.h"
#include "tegula/ops/common/docs.h"

namespace tegula::cli {

namespace {

Json json_of(const OpDef& op) {
  Json::Array attributes;
  for (const AttrDef& a : op.attrs) attributes.emplace_back(a.name);
  return Json::object({{"name", op.name},
                       {"group", op.group},
                       {"source", op.source},
                       {"formula", op.formula},
                       {"attributes", std::move(attributes)},
                       {"has_vjp", op.vjp != nullptr},
                       {"has_jvp", op.jvp != nullptr},
                       {"decomposes", op.decompose != nullptr}});
}

void print_table() {
  for (const OpDef* op : all_ops())
    std::printf("%-24.*s %-12.*s %.*s\n", static_cast<int>(op->name.size()), op->name.data(),
                static_cast<int>(op->group.size()), op->group.data(),
                static_cast<int>(op->formula.size()), op->formula.data());
}

}  // namespace

void add_ops(CLI::App& app, int& exit_code) {
  auto* cmd = app.add_subcommand("ops", "List the table of ops");
  static bool markdown = false, json = false;
  auto* as_page = cmd->add_flag("--markdown", markdown, "As docs/ops.md");
  cmd->add_flag("--json", json, "One JSON array")->excludes(as_page);
  cmd->callback([&exit_code] {
    if (json) {
      Json::Array rows;
      for (const OpDef* op : all_ops()) rows.push_back(json_of(*op));
      std::printf("%s\n", Json(std::move(rows)).dump().c_str());
    } else if (markdown) {
      std::fputs(ops_markdown().c_str(), stdout);
    } else {
      print_table();
    }
    exit_code = kDone;
  });
}

}  // namespace tegula::cli
