#include <cstdio>

#include "cli/command.h"
#include "cli/printable.h"
#include "tegula/base/text.h"
#include "tegula/io/json.h"
#include "tegula/models/model.h"
#include "tegula/models/model_info.h"

namespace tegula::cli {

namespace {

Json to_json(const ModelInfo& i, const ModelDef& model) {
  Json::Array formats;
  for (const ModelInfo::Format& f : i.formats)
    formats.push_back(Json::object({{"format", f.name},
                                    {"tensors", f.n_tensors},
                                    {"values", f.n_values},
                                    {"bytes", f.n_bytes}}));
  return Json::object({{"path", i.path},
                       {"form", i.form},
                       {"family", model.name},
                       {"architecture", model.hf_class},
                       {"parameters", i.n_parameters},
                       {"layers", i.config.n_layers},
                       {"context", i.config.max_seqlen},
                       {"vocab_size", i.config.vocab_size},
                       {"formats", std::move(formats)},
                       {"weight_bytes", i.weight_bytes},
                       {"cache_bytes_per_token", i.cache_bytes},
                       {"window", i.window},
                       {"tokenizer", i.tokenizer},
                       {"tokens", i.n_tokens},
                       {"end_of_text", Json::Array(i.end_of_text.begin(), i.end_of_text.end())},
                       {"template_bytes", i.template_bytes}});
}

std::string ids_of(const std::vector<int64_t>& ids) {
  return ids.empty() ? "none is named" : joined(ids);
}

void print(const ModelInfo& i, const ModelDef& model) {
  const auto line = [](const char* name, const std::string& value) {
    std::printf("%-13s%s\n", name, printable(value).c_str());
  };
  const double mb = 1e6;
  const auto megabytes = [&](int64_t n) { return printed("%.1f MB", static_cast<double>(n) / mb); };
  line("model", cat(i.path, " (", i.form, ")"));
  line("family", cat(model.name, model.hf_class.empty() ? "" : cat(", ", model.hf_class)));
  line("parameters", cat(i.n_parameters, " in ", i.config.n_layers, " layers"));
  line("context", cat(i.config.max_seqlen, " tokens"));
  line("tokenizer", i.n_tokens > 0
                        ? cat(i.tokenizer, ", ", i.n_tokens, " of ", i.config.vocab_size, " ids")
                        : cat("none that can be used: ", i.tokenizer));
  line("end of text", ids_of(i.end_of_text));
  line("template", i.template_bytes > 0 ? cat(i.template_bytes, " bytes, for chats") : "none");
  for (const ModelInfo::Format& f : i.formats)
    line(&f == i.formats.data() ? "formats" : "",
         cat(f.name, ": ", f.n_tensors, " tensors, ", megabytes(f.n_bytes)));
  line("to run", cat(megabytes(i.weight_bytes), " of weights as stored",
                     i.cache_bytes > 0
                         ? cat(", and ", i.cache_bytes, " bytes a token of keys and values in f32",
                               i.window > 0 ? cat(", less behind windows of ", i.window) : "")
                         : ""));
}

}  // namespace

void add_info(const Command& app, int& exit_code) {
  const auto cmd = app.add_command(
      "info", "What a model's files hold: formats, context, tokenizer, bytes needed");
  static std::string path;
  static bool json = false;
  cmd.add_option("PATH", path, "A GGUF file, a directory of a model, or a run")
      .required()
      .refuse_empty();
  cmd.add_flag("--json", json, "One JSON object");
  cmd.callback([&exit_code] {
    const auto info = [&]() -> Result<ModelInfo> {
      return model_info(*TEGULA_TRY(ModelFiles::open(path, Check::kAllButTensors)));
    }();
    if (!info.ok()) {
      exit_code = report(info.error());
      return;
    }
    const ModelDef& model = **find_model(info->config.type);
    if (json)
      print_line(to_json(*info, model));
    else
      print(*info, model);
    exit_code = kDone;
  });
}

}  // namespace tegula::cli
