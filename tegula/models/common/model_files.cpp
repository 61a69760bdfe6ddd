#include "tegula/models/model_files.h"

#include "tegula/io/checkpoint.h"
#include "tegula/io/file.h"
#include "tegula/io/json.h"
#include "tegula/io/weight_files.h"
#include "tegula/models/gguf_files.h"
#include "tegula/models/model.h"
#include "tegula/models/text_part.h"
#include "tegula/text/tokenizer.h"

namespace tegula {

namespace {

constexpr const char* kGeneration = "generation_config.json";
constexpr const char* kTokenizerConfig = "tokenizer_config.json";
constexpr const char* kChatTemplate = "chat_template.jinja";
// The first three say how texts are made, the others how they are read.
constexpr const char* kCompanions[] = {
    kGeneration,         kChatTemplate,     "chat_template.json",
    "tokenizer.json",    kTokenizerConfig,  "special_tokens_map.json",
    "added_tokens.json", "tokenizer.model", "spiece.model",
    "vocab.json",        "merges.txt",      "vocab.txt"};

// A directory with config.json, model.safetensors or its shards, tokenizer.json and more.
class DirectoryFiles : public ModelFiles {
 public:
  explicit DirectoryFiles(std::string directory) : directory_(std::move(directory)) {}

  const std::string& path() const override { return directory_; }
  Result<TextFile> config() const override;
  Result<WeightFiles> weights() const override;
  std::string note() const override;
  Status verify_weights() const override { return verify_model_tensors(directory_); }
  Result<Tokenizer> tokenizer() const override { return Tokenizer::load(directory_); }
  Result<TextFile> generation() const override {
    return has(kGeneration) ? read(kGeneration) : TextFile{place(kGeneration), "{}"};
  }
  Result<TextFile> chat_template() const override;
  Result<TextFile> special_tokens() const override;
  Result<TextFile> other(std::string_view name) const override {
    return has(name) ? read(name) : TextFile{place(name), ""};
  }
  Result<std::vector<TextFile>> companions() const override;

 private:
  std::string place(std::string_view name) const { return join_path(directory_, name); }
  bool has(std::string_view name) const { return path_exists(place(name)); }
  Result<TextFile> read(std::string_view name) const {
    return TextFile{place(name), TEGULA_TRY(read_file(place(name)))};
  }
  // The text's part of config.json; null: it is all text, or none that can be read.
  Json text_of_config(std::string& others) const;
  std::string directory_;
};

Json DirectoryFiles::text_of_config(std::string& others) const {
  const auto text = read(kConfigFile);
  const auto json = text.ok() ? Json::parse(text->text, text->path) : text.error();
  if (!json.ok()) return {};
  const Json* type = json->find("model_type");
  for (const auto* m : all_models())  // whose own keys are read
    if (type != nullptr && *type == Json(m->hf_type)) return {};
  return text_part(*json, others);
}

Result<TextFile> DirectoryFiles::config() const {
  std::string others;
  const Json part = text_of_config(others);
  if (part.is_null()) return read(kConfigFile);
  return TextFile{place(kConfigFile), part.dump(2)};
}

Result<WeightFiles> DirectoryFiles::weights() const {
  WeightFiles files = TEGULA_TRY(WeightFiles::open(directory_));
  std::string others;
  if (!text_of_config(others).is_null()) files.rename(text_name);
  return files;
}

// "of the model in 'DIR' its text_config alone is read, not vision_config; 439 tensors of
// vision_tower, … are left out".
std::string DirectoryFiles::note() const {
  std::string others, parts;
  if (text_of_config(others).is_null()) return "";
  int64_t n = 0;
  const auto files = WeightFiles::open(directory_);
  const auto look_at = [&](std::string_view name, const WeightFiles::Found&) {
    if (!text_name(name).empty()) return;
    ++n;
    std::string_view part = name;
    if (part.starts_with("model.")) part.remove_prefix(6);
    part = part.substr(0, part.find('.'));
    if (cat(", ", parts, ", ").find(cat(", ", part, ", ")) == std::string::npos)
      parts += cat(parts.empty() ? "" : ", ", part);
  };
  if (files.ok()) files->for_each(look_at);
  return cat("of the model in '", directory_, "' its text_config alone is read",
             others.empty() ? "" : cat(", not ", others),
             n == 0 ? "" : cat("; ", n, " tensors are left out, those of ", parts));
}

// In a file of its own, or in the tokenizer's, as a text or as one of some that have names.
Result<TextFile> DirectoryFiles::chat_template() const {
  if (has(kChatTemplate)) return read(kChatTemplate);
  TextFile none{place(kChatTemplate), ""};
  if (!has(kTokenizerConfig)) return none;
  const auto [path, text] = TEGULA_TRY(read(kTokenizerConfig));
  const Json config = TEGULA_TRY(Json::parse(text, path));
  const Json* found = config.find("chat_template");
  if (found == nullptr || found->is_null()) return none;
  if (const auto* list = found->as<Json::Array>())
    for (const Json& each : *list)
      if (const Json* name = each.find("name"); name != nullptr && *name == Json("default"))
        found = each.find("template");
  if (const auto* its = found != nullptr ? found->as<std::string>() : nullptr)
    return TextFile{path, *its};
  return invalid_argument(cat("'", path, "': chat_template is neither a text nor a list with one ",
                              "of the name \"default\""));
}

// transformers' special_tokens_map: each a text, or an object with a content; several in a list.
Result<TextFile> DirectoryFiles::special_tokens() const {
  Json all = Json::object();
  const auto text_of = [](const Json& token) {
    const Json* content = token.find("content");
    return content != nullptr ? *content : token;
  };
  // The first of them that names a token is heard.
  for (const char* name : {kTokenizerConfig, "special_tokens_map.json"}) {
    if (!has(name)) continue;
    const auto [path, text] = TEGULA_TRY(read(name));
    const Json config = TEGULA_TRY(Json::parse(text, path));
    for (const char* key : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
                            "cls_token", "mask_token"})
      if (const Json* token = config.find(key); token != nullptr && all.find(key) == nullptr)
        if (const Json its = text_of(*token); its.as<std::string>() != nullptr) all.set(key, its);
  }
  return TextFile{place(kTokenizerConfig), all.dump()};
}

Result<std::vector<TextFile>> DirectoryFiles::companions() const {
  std::vector<TextFile> found;
  for (const char* name : kCompanions)
    if (has(name)) found.push_back({name, TEGULA_TRY(read(name)).text});
  return found;
}

// One id, a list of them, or none.
Result<std::vector<int64_t>> end_of_text_in(const TextFile& file) {
  const Json json = TEGULA_TRY(Json::parse(file.text, file.path));
  const Json* ids = json.find("eos_token_id");
  if (ids == nullptr || ids->is_null()) return std::vector<int64_t>{};
  if (const auto* id = ids->as<int64_t>()) return std::vector<int64_t>{*id};
  std::vector<int64_t> all;
  const auto* list = ids->as<Json::Array>();
  for (const Json& each : list ? *list : Json::Array{Json()}) {
    const auto* id = each.as<int64_t>();
    if (id == nullptr)
      return invalid_argument(
          cat(file.path, ": eos_token_id is ", ids->dump(), ", neither an id nor a list of ids"));
    all.push_back(*id);
  }
  return all;
}

}  // namespace

Result<std::shared_ptr<const ModelFiles>> ModelFiles::open(const std::string& path, Check check) {
  if (is_regular_file(path))
    return std::shared_ptr<const ModelFiles>(TEGULA_TRY(GgufFiles::open(path)));
  return std::shared_ptr<const ModelFiles>(
      std::make_shared<DirectoryFiles>(TEGULA_TRY(resolve_model_directory(path, check))));
}

Result<std::vector<int64_t>> ModelFiles::end_of_text() const {
  auto said = TEGULA_TRY(end_of_text_in(TEGULA_TRY(generation())));
  if (!said.empty()) return said;
  return end_of_text_in(TEGULA_TRY(config()));
}

}  // namespace tegula
