#include <cstdio>

#include "cli/command.h"
#include "tegula/io/json.h"
#include "tegula/ir/opdef.h"
#include "tegula/ir/regions.h"
#include "tegula/kernels/kernel.h"
#include "tegula/ops/common/docs.h"

namespace tegula::cli {

namespace {

// How a device runs the op: kernels of its own; a view; in a fused group, as its tile program or
// made anew where it is read; its decomposition; steps of its bodies; between ranks, of which a GPU
// has one alone; or else the host.
struct HowRun {
  const char* by = "host";
  Json::Array kernels;
};
HowRun how_run(const OpDef& op, DeviceKind device) {
  HowRun how;
  for (const KernelDef* k : all_kernels())
    if (k->device == device && k->op == op.name) how.kernels.emplace_back(k->name);
  if (!how.kernels.empty()) return {"kernel", std::move(how.kernels)};
  if (op.is_view) return {"view", {}};
  const bool is_source = op.name == "iota" || op.name == "random_uniform";
  if (op.tile != nullptr || is_source) return {"tile", {}};
  if (op.decompose != nullptr) return {"decomposition", {}};
  if (has_bodies(op)) return {"bodies", {}};
  if (op.group == "collective") return {"ranks", {}};
  return how;
}

Json json_of(const OpDef& op, DeviceKind device) {
  HowRun how = how_run(op, device);
  Json::Array attributes;
  for (const AttrDef& a : op.attrs) attributes.emplace_back(a.name);
  return Json::object({{"name", op.name},
                       {"group", op.group},
                       {"source", op.source},
                       {"formula", op.formula},
                       {"attributes", std::move(attributes)},
                       {"has_vjp", op.vjp != nullptr},
                       {"has_jvp", op.jvp != nullptr},
                       {"decomposes", op.decompose != nullptr},
                       {"runs_by", how.by},
                       {"kernels", std::move(how.kernels)}});
}

void print_table() {
  for (const OpDef* op : all_ops())
    std::printf("%-24.*s %-12.*s %.*s\n", static_cast<int>(op->name.size()), op->name.data(),
                static_cast<int>(op->group.size()), op->group.data(),
                static_cast<int>(op->formula.size()), op->formula.data());
}

}  // namespace

void add_ops(const Command& app, int& exit_code) {
  const auto cmd = app.add_command("ops", "List the table of ops");
  static bool markdown = false, json = false;
  static std::string device = "cpu";
  const auto as_page = cmd.add_flag("--markdown", markdown, "As docs/ops.md");
  const auto as_json = cmd.add_flag("--json", json, "One JSON array").excludes(as_page);
  one_of(cmd.add_option("--device", device, "Whose kernels the JSON names"), {"cpu", "cuda"})
      .needs(as_json);
  cmd.callback([&exit_code] {
    if (json) {
      Json::Array rows;
      for (const OpDef* op : all_ops())
        rows.push_back(json_of(*op, device == "cuda" ? DeviceKind::kCuda : DeviceKind::kCpu));
      print_line(Json(std::move(rows)));
    } else if (markdown) {
      std::fputs(ops_markdown().c_str(), stdout);
    } else {
      print_table();
    }
    exit_code = kDone;
  });
}

}  // namespace tegula::cli
