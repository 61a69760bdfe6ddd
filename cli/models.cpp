#include <cstdio>

#include "cli/command.h"
#include "cli/process.h"
#include "tegula/base/text.h"
#include "tegula/io/json.h"
#include "tegula/models/config_keys.h"
#include "tegula/models/model.h"
#include "tegula/models/model_files.h"

namespace tegula::cli {

namespace {

int width_of(std::string_view text) { return static_cast<int>(text.size()); }

void print_families() {
  for (const ModelDef* m : all_models())
    std::printf("%-8.*s %-16.*s %.*s\n", width_of(m->name), m->name.data(), width_of(m->hf_type),
                m->hf_type.data(), width_of(m->doc), m->doc.data());
}

// The heading above the keys below it.
std::string_view meaning(KeyUse use) {
  switch (use) {
    case KeyUse::kComputed:
      return "read, and computed: the setting that it gives";
    case KeyUse::kTraining:
      return "read, and used in training alone";
    case KeyUse::kFixed:
      return "must have one of these values, else the file is refused";
    case KeyUse::kFree:
      return "ignored, because it says nothing of logits";
    case KeyUse::kOther:
      return "changes other models: refused unless it is null, false or 0";
  }
  return "";
}

void print_keys(const ModelDef& model) {
  const std::vector<ConfigKey> keys = config_keys(model);
  const ConfigKey* last = nullptr;
  for (const ConfigKey& k : keys) {
    if (last == nullptr || last->use != k.use) {
      const std::string_view use = use_name(k.use), what = meaning(k.use);
      std::printf("%s%.*s: %.*s\n", last == nullptr ? "" : "\n", width_of(use), use.data(),
                  width_of(what), what.data());
    }
    std::printf("  %-38s %s\n", k.key.c_str(), k.what.c_str());
    last = &k;
  }
}

Json json_of(const ModelDef& model) {
  Json::Array keys;
  for (const ConfigKey& k : config_keys(model))
    keys.push_back(Json::object({{"key", k.key}, {"use", use_name(k.use)}, {"what", k.what}}));
  return Json::object({{"family", model.name},
                       {"model_type", model.hf_type},
                       {"architecture", model.hf_class},
                       {"doc", model.doc},
                       {"keys", std::move(keys)}});
}

}  // namespace

void note_on_model(const std::string& path) {
  const auto files = ModelFiles::open(path, Check::kAllButTensors);
  const auto config = files.ok() ? (*files)->config() : files.error();
  if (!config.ok()) return;
  for (const std::string& note : {(*files)->note(), note_on_keys(config->text, config->path)})
    if (!note.empty()) print_note(note);
}

void add_models(const Command& app, int& exit_code) {
  const auto cmd = app.add_command(
      "models", "List the families of models, or what is done with each key of a config.json");
  static std::string family;
  static bool json = false;
  cmd.add_option("FAMILY", family, "A family's name, or its model_type");
  cmd.add_flag("--json", json, "A JSON array of families with their keys");
  cmd.callback([&exit_code] {
    Json::Array rows;
    const ModelDef* asked = nullptr;
    std::vector<std::string> names;
    for (const ModelDef* m : all_models()) {
      names.emplace_back(m->name);
      if (m->name == family || m->hf_type == family) asked = m;
    }
    if (!family.empty() && asked == nullptr)
      usage_error(cat("FAMILY: there is no ", family, ": choose one of ", joined(names)));
    if (json) {
      for (const ModelDef* m : all_models())
        if (asked == nullptr || m == asked) rows.push_back(json_of(*m));
      print_line(Json(std::move(rows)));
    } else if (asked != nullptr) {
      print_keys(*asked);
    } else {
      print_families();
    }
    exit_code = kDone;
  });
}

}  // namespace tegula::cli
