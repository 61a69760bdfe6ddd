// The files of a tokenizer, in the form of the `tokenizers` library.
#include <unordered_map>

#include "tegula/base/amounts.h"
#include "tegula/io/file.h"
#include "tegula/io/json.h"
#include "tegula/text/post_processor.h"
#include "tegula/text/tokenizer.h"
#include "tegula/text/tokenizer_forms.h"

namespace tegula {

namespace {

using Ids = std::unordered_map<std::string, int32_t>;  // by the names in the file

// Fills in ids, names and is_added. Ids must be 0, 1, 2, …
Status read_names(const Json* added, TokenizerFile& file) {
  const Json* vocab = file.model.find("vocab");
  const auto* scored = file.model.find_as<Json::Array>("vocab");
  if (vocab == nullptr || (vocab->as<Json::Object>() == nullptr && scored == nullptr))
    return invalid_argument("model.vocab is missing");
  const auto put = [&](const std::string& name, const Json* id) -> Status {
    const auto* value = id != nullptr ? id->as<int64_t>() : nullptr;
    if (value == nullptr || *value < 0 || *value >= INT32_MAX)
      return invalid_argument(cat("the id of token '", name, "' is not a small integer"));
    file.ids[name] = static_cast<int32_t>(*value);
    return {};
  };
  if (scored == nullptr)
    for (const Json::Member& m : *vocab->as<Json::Object>()) TEGULA_TRY(put(m.key, &m.value));
  for (const Json& each : list_of(vocab)) {  // [["<unk>", 0], ["▁the", -3.2], …]
    const Json::Array& pair = list_of(&each);
    if (pair.size() != 2 || pair[0].as<std::string>() == nullptr || !pair[1].is_number())
      return invalid_argument(
          cat("entry ", file.scores.size(), " of model.vocab is not a token with its score"));
    const Json id(static_cast<int64_t>(file.scores.size()));
    if (file.ids.contains(text_of(&pair[0])))
      return invalid_argument(cat("model.vocab has '", text_of(&pair[0]), "' twice"));
    TEGULA_TRY(put(text_of(&pair[0]), &id));
    file.scores.push_back(pair[1].number(0));
  }
  const Ids words = file.ids;
  if (const auto* list = added != nullptr ? added->as<Json::Array>() : nullptr)
    for (const Json& token : *list)
      TEGULA_TRY(put(text_of(token.find("content")), token.find("id")));
  file.names.resize(file.ids.size());
  std::vector<bool> is_taken(file.ids.size());
  for (const auto& [name, id] : file.ids) {
    const auto at = static_cast<size_t>(id);
    if (at >= file.names.size() || is_taken[at])
      return invalid_argument(cat("the ids of its ", file.ids.size(),
                                  " tokens are not 0, 1, 2, … (see '", name, "' = ", id, ")"));
    is_taken[at] = true;
    file.names[at] = name;
  }
  for (const std::string& name : file.names) file.is_added.push_back(!words.contains(name));
  return {};
}

// The content of one that is normalised is, so that it is found in a normalised text.
Result<std::vector<AddedToken>> read_added(const Json* list, const Ids& ids,
                                           const Normalizer& normalizer) {
  std::vector<AddedToken> tokens;
  for (const Json& t : list_of(list)) {
    TEGULA_TRY(
        check_keys(t, "added token",
                   {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"}));
    const std::string content = text_of(t.find("content"));
    const Json* normalized = t.find("normalized");
    const bool is_normalized =
        normalized != nullptr ? is_true(normalized) : !is_true(t.find("special"));
    tokens.push_back({is_normalized ? normalizer.apply(content) : content, ids.at(content),
                      is_true(t.find("lstrip")), is_true(t.find("rstrip")), is_normalized,
                      is_true(t.find("special")), is_true(t.find("single_word"))});
  }
  return tokens;
}

// Truncation and padding are a batch's: as in transformers, a text's ids are all of it, and they
// are left to whoever makes batches.
Status check_form(const Json& json) {
  return check_keys(json, "file",
                    {"version", "truncation", "padding", "added_tokens", "normalizer",
                     "pre_tokenizer", "post_processor", "decoder", "model"});
}

// tokenizer.json, and the file that says who reads it.
std::vector<std::pair<std::string, std::string>> files_of(const Json& tokenizer, bool insists,
                                                          bool has_mask = false) {
  // The class that does what tokenizer.json says. Beside some types of models AutoTokenizer heeds
  // it only where there is an auto_map.
  constexpr const char* kClass = "PreTrainedTokenizerFast";
  Json config =
      Json::object({{"tokenizer_class", kClass}, {"clean_up_tokenization_spaces", false}});
  if (insists)
    config.set("auto_map", Json::object({{"AutoTokenizer", Json::Array{kClass, nullptr}}}));
  if (has_mask) config.set("mask_token", kMaskToken);
  return {{"tokenizer.json", tokenizer.dump(1) + "\n"},
          {"tokenizer_config.json", config.dump(2) + "\n"}};
}

}  // namespace

std::vector<std::pair<std::string, std::string>> Tokenizer::files(bool insists) const {
  if (!loaded_files_.empty()) return loaded_files_;
  if (loaded_json_ != nullptr) return files_of(*loaded_json_, insists);
  Json::Object members = model_->members();
  Json::Array added;
  for (const AddedToken& t : added_.tokens(false))
    added.push_back(Json::object({{"id", t.id},
                                  {"content", t.content},
                                  {"single_word", false},
                                  {"lstrip", false},
                                  {"rstrip", false},
                                  {"normalized", false},
                                  {"special", true}}));
  Json tokenizer = Json::object({{"version", "1.0"},
                                 {"truncation", nullptr},
                                 {"padding", nullptr},
                                 {"added_tokens", std::move(added)},
                                 {"normalizer", nullptr},
                                 {"pre_tokenizer", nullptr},
                                 {"post_processor", nullptr},
                                 {"decoder", nullptr},
                                 {"model", nullptr}});
  for (Json::Member& m : members) tokenizer.set(m.key, std::move(m.value));
  return files_of(tokenizer, insists, special(kMaskToken) >= 0);
}

Status Tokenizer::save(const std::string& directory) const {
  TEGULA_TRY(make_directories(directory));
  for (const auto& [name, content] : files())
    TEGULA_TRY(replace_file(join_path(directory, name), content));
  return {};
}

Result<Tokenizer> Tokenizer::read(const Json& json) {
  const Json* model = json.find("model");
  if (model == nullptr) return invalid_argument("it has no model");
  // Files of early versions, GPT-2's among them, do not name the type.
  const bool is_early = model->find("type") == nullptr && model->find("merges") != nullptr;
  TEGULA_TRY(check_form(json));
  TokenizerFile file{*model,
                     is_early ? "BPE" : text_of(model->find("type")),
                     TEGULA_TRY(Words::read(json.find("pre_tokenizer"))),
                     {},
                     {},
                     {}};
  TEGULA_TRY(read_names(json.find("added_tokens"), file));
  auto forms = std::make_shared<TextForms>();
  forms->normalizer = TEGULA_TRY(Normalizer::read(json.find("normalizer")));
  // There it depends on where the library thinks that the first character came from.
  const Normalizer& n = forms->normalizer;
  if ((file.words.puts_first() && n.moves_the_first()) ||
      (file.words.puts_behind_cuts() && !n.empty()))
    return unsupported(
        "its pre_tokenizer Metaspace puts a space in front of the first word alone, "
        "and its normalizer may drop a character, or words are cut before");
  forms->decoder = TEGULA_TRY(Decoder::read(json.find("decoder")));
  std::vector<AddedToken> added =
      TEGULA_TRY(read_added(json.find("added_tokens"), file.ids, forms->normalizer));
  Around around = TEGULA_TRY(read_post_processor(json.find("post_processor")));
  for (const auto* list : {&around.before, &around.behind})
    for (const int32_t id : *list)
      if (static_cast<size_t>(id) >= file.names.size())
        return invalid_argument(cat("its post_processor adds id ", id, " of ", file.names.size()));
  const TokenizerKind* kind = TEGULA_TRY(kind_of(file));
  Vocabulary vocabulary{{}, TEGULA_TRY(kind->read(file))};
  // As text they are what was looked for.
  for (const AddedToken& t : added) file.names[t.id] = t.content;
  std::vector<bool> are_bytes;
  for (const std::string& name : file.names) {
    vocabulary.tokens.push_back(forms->decoder.text(name, false));
    are_bytes.push_back(forms->decoder.is_byte(name));
  }
  if (forms->decoder.minds_the_first()) forms->names = std::move(file.names);
  Tokenizer t(kind->name, std::move(vocabulary));
  t.is_byte_ = std::move(are_bytes), t.is_special_.resize(t.tokens_.size());
  for (const AddedToken& each : added) t.is_special_[each.id] = each.is_special;
  t.added_ = AddedTokens(std::move(added)), t.forms_ = std::move(forms);
  t.before_ = std::move(around.before), t.behind_ = std::move(around.behind);
  return t;
}

Result<Tokenizer> Tokenizer::load(const std::string& directory) {
  const std::string path = join_path(directory, "tokenizer.json");
  if (!path_exists(path)) {
    for (const char* model : {"tokenizer.model", "spiece.model"})
      if (path_exists(join_path(directory, model))) return load_model(directory, model);
    for (const char* other : {"vocab.json", "vocab.txt", "sentencepiece.bpe.model"})
      if (path_exists(join_path(directory, other)))
        return unsupported(cat("'", directory, "' has its tokenizer in ", other, ", not in ",
                               "tokenizer.json: let transformers write one, with ",
                               "AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)"));
  }
  const std::string text = TEGULA_TRY(read_file(path));
  const auto json = Json::parse(text, path);
  auto tokenizer = json.ok() ? read(*json) : json.error();
  if (tokenizer.ok()) {
    tokenizer->loaded_files_ = {{"tokenizer.json", text}};
    if (const auto config = read_file(join_path(directory, "tokenizer_config.json")); config.ok())
      tokenizer->loaded_files_.emplace_back("tokenizer_config.json", *config);
    return tokenizer;
  }
  return named(cat("cannot use the tokenizer '", path, "'"), std::move(tokenizer).error());
}

Result<Tokenizer> Tokenizer::from_json(Json json, const std::string& path) {
  auto tokenizer = TEGULA_TRY(named(cat("cannot use the tokenizer '", path, "'"), read(json)));
  tokenizer.loaded_json_ = std::make_shared<const Json>(std::move(json));
  return tokenizer;
}

}  // namespace tegula
