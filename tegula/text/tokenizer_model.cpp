// A tokenizer that is a SentencePiece model and what tokenizer_config.json says besides: as
// transformers' classes for Llama, Gemma and T5 read them.
#include <tuple>

#include "tegula/base/algorithm.h"
#include "tegula/base/amounts.h"
#include "tegula/io/file.h"
#include "tegula/text/sentencepiece_file.h"
#include "tegula/text/tokenizer.h"
#include "tegula/text/tokenizer_forms.h"

namespace tegula {
namespace {

struct Convention {
  std::string_view name;  // tokenizer_class, without "Fast"
  bool begins = false, ends = false;
};
// Others number pieces anew, or change texts by rules of their own.
constexpr Convention kConventions[] = {{""},
                                       {"PreTrainedTokenizer"},
                                       {"LlamaTokenizer", true},
                                       {"CodeLlamaTokenizer", true},
                                       {"GemmaTokenizer", true},
                                       {"T5Tokenizer", false, true}};

Result<Convention> convention_of(const Json& config) {
  std::string name = text_of(config.find("tokenizer_class"));
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  for (Convention c : kConventions) {
    if (c.name != name) continue;
    if (const Json* says = config.find("add_bos_token"); !is_absent(says)) c.begins = is_true(says);
    if (const Json* says = config.find("add_eos_token"); !is_absent(says)) c.ends = is_true(says);
    return c;
  }
  return unsupported(cat("its tokenizer_config.json has the class ", name,
                         ", which does more than its pieces say: let transformers write a "
                         "tokenizer.json, with AutoTokenizer.from_pretrained(DIR)"
                         ".save_pretrained(DIR)"));
}

// Tokens that are found in text whole: {"32000": {"content": "<pad>", …}}, or {"<pad>": 32000}.
Status read_added(const Json& config, const Json& older, std::vector<std::string>& names,
                  std::vector<AddedToken>& added) {
  std::vector<std::pair<int64_t, Json>> tokens;
  if (const Json* decoder = config.find("added_tokens_decoder"))
    if (const auto* members = decoder->as<Json::Object>())
      for (const Json::Member& m : *members) {
        const auto id = Json::parse(m.key, "an id of added_tokens_decoder");
        const auto* number = id.ok() ? id->as<int64_t>() : nullptr;
        TEGULA_TRY(
            check_keys(m.value, cat("added token ", m.key),
                       {"content", "single_word", "lstrip", "rstrip", "normalized", "special"}));
        tokens.emplace_back(number != nullptr ? *number : -1, m.value);
      }
  if (const auto* members = older.as<Json::Object>(); members != nullptr && tokens.empty())
    for (const Json::Member& m : *members)
      tokens.emplace_back(static_cast<int64_t>(m.value.number(-1)),
                          Json::object({{"content", m.key}, {"special", true}}));
  std::sort(tokens.begin(), tokens.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [id, token] : tokens) {
    const std::string content = text_of(token.find("content"));
    if (id == static_cast<int64_t>(names.size())) names.push_back(content);
    if (id < 0 || id >= static_cast<int64_t>(names.size()) || content.empty())
      return invalid_argument(cat("its added token '", content, "' has the id ", id,
                                  ", and the ids "
                                  "before it end at ",
                                  names.size()));
    names[static_cast<size_t>(id)] = content;
    added.push_back({content, static_cast<int32_t>(id), is_true(token.find("lstrip")),
                     is_true(token.find("rstrip")), false, is_true(token.find("special")),
                     is_true(token.find("single_word"))});
  }
  return {};
}

}  // namespace

Result<Tokenizer> Tokenizer::parse_model(std::string_view bytes, const Json& config,
                                         const Json& added_tokens) {
  const Convention convention = TEGULA_TRY(convention_of(config));
  const Json* legacy = config.find("legacy");
  SentencePieceFile file =
      TEGULA_TRY(read_sentencepiece(bytes, !is_absent(legacy) && !is_true(legacy)));
  if (convention.name == "T5Tokenizer" && config.find("added_tokens_decoder") == nullptr &&
      (config.find("extra_ids") == nullptr || config.find("extra_ids")->number(0) != 0))
    return unsupported(
        "T5's extra ids are not listed: its tokenizer_config.json has no "
        "added_tokens_decoder, nor extra_ids = 0");
  auto forms = std::make_shared<TextForms>();
  const Json decoder = *Json::parse(cat(R"({"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
      {"type": "ByteFallback"}, {"type": "Fuse"},
      {"type": "Strip", "content": " ", "start": )",
                                        file.n_spaces, R"(, "stop": 0}]})"),
                                    "decoder");
  forms->decoder = TEGULA_TRY(Decoder::read(&decoder));
  std::vector<AddedToken> added;
  TEGULA_TRY(read_added(config, added_tokens, file.names, added));
  file.are_bytes.resize(file.names.size()), file.are_control.resize(file.names.size());
  Vocabulary vocabulary{{}, std::move(file.model)};
  for (const std::string& name : file.names)
    vocabulary.tokens.push_back(forms->decoder.text(name, false));
  for (const AddedToken& t : added) vocabulary.tokens[static_cast<size_t>(t.id)] = t.content;
  Tokenizer t(file.kind, std::move(vocabulary));
  t.is_byte_ = std::move(file.are_bytes), t.is_special_ = std::move(file.are_control);
  for (const AddedToken& a : added) t.is_special_[static_cast<size_t>(a.id)] = a.is_special;
  t.added_ = AddedTokens(std::move(added)), t.forms_ = std::move(forms);
  for (const auto& [puts, id, name, ids] :
       {std::tuple(convention.begins, file.begin, "begin", &t.before_),
        std::tuple(convention.ends, file.end, "end", &t.behind_)}) {
    if (!puts) continue;
    if (id < 0)
      return invalid_argument(cat("its tokenizer_config.json asks for a token at the ", name,
                                  " of a text, and the model has none"));
    ids->push_back(id);
  }
  return t;
}

Result<Tokenizer> Tokenizer::load_model(const std::string& directory, const std::string& name) {
  const std::string path = join_path(directory, name);
  const std::string bytes = TEGULA_TRY(read_file(path));
  std::vector<std::pair<std::string, std::string>> files = {{name, bytes}};
  const auto read = [&](const char* other) -> Result<Json> {
    const std::string at = join_path(directory, other);
    if (!path_exists(at)) return Json::object();
    files.emplace_back(other, TEGULA_TRY(read_file(at)));
    return Json::parse(files.back().second, at);
  };
  const Json config = TEGULA_TRY(read("tokenizer_config.json"));
  const Json added = TEGULA_TRY(read("added_tokens.json"));
  auto tokenizer = parse_model(bytes, config, added);
  if (tokenizer.ok()) {
    tokenizer->loaded_files_ = std::move(files);
    return tokenizer;
  }
  return named(cat("cannot use the tokenizer '", path, "'"), std::move(tokenizer));
}

}  // namespace tegula
