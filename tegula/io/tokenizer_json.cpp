// The files of a tokenizer, in the form of the `tokenizers` library.
#include <algorithm>
#include <unordered_map>

#include "tegula/io/file.h"
#include "tegula/io/json.h"
#include "tegula/io/post_processor.h"
#include "tegula/io/tokenizer.h"
#include "tegula/io/utf8.h"

namespace tegula {
namespace {

// JSON strings hold characters, not bytes, so GPT-2 writes each byte as a visible character:
// itself where Latin-1 shows one, else the next one from U+0100 on.
struct ByteAlphabet {
  std::array<char32_t, 256> character{};
  std::array<int, 0x180> byte{};
  ByteAlphabet() {
    byte.fill(-1);
    char32_t next = 0x100;
    for (char32_t b = 0; b < 256; ++b) {
      const bool is_visible = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
      character[b] = is_visible ? b : next++;
      byte[character[b]] = static_cast<int>(b);
    }
  }
};
const ByteAlphabet& byte_alphabet() {
  static const ByteAlphabet alphabet;
  return alphabet;
}

std::string to_visible(std::string_view bytes) {
  std::string out;
  for (char b : bytes) append_utf8(out, byte_alphabet().character[static_cast<unsigned char>(b)]);
  return out;
}

// The bytes that the visible characters stand for; the text itself where one is not of them.
std::string from_visible(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = first_code_point(text.substr(at));
    if (c.value >= byte_alphabet().byte.size() || byte_alphabet().byte[c.value] < 0)
      return std::string(text);
    out += static_cast<char>(byte_alphabet().byte[c.value]);
    at += c.n_bytes;
  }
  return out;
}

// chars: a byte that is not UTF-8 is written as the decoder "ByteFallback" reads it.
std::string char_name(const std::string& token) {
  if (first_code_point(token).is_valid) return token;
  char buffer[8];
  std::snprintf(buffer, sizeof buffer, "<0x%02X>", static_cast<unsigned char>(token[0]));
  return buffer;
}

std::string from_char_name(const std::string& name) {
  unsigned byte = 0;
  if (name.size() == 6 && std::sscanf(name.c_str(), "<0x%2X>", &byte) == 1)
    return std::string(1, static_cast<char>(byte));
  return name;
}

Json byte_level(bool use_regex) {
  return Json::object({{"type", "ByteLevel"},
                       {"add_prefix_space", false},
                       {"trim_offsets", true},
                       {"use_regex", use_regex}});
}

Json typed(const char* type) { return Json::object({{"type", type}}); }

std::string text_of(const Json* value) {
  const auto* text = value != nullptr ? value->as<std::string>() : nullptr;
  return text != nullptr ? *text : "";
}

bool is_true(const Json* value) {
  const bool* b = value != nullptr ? value->as<bool>() : nullptr;
  return b != nullptr && *b;
}

bool is_absent(const Json* value) { return value == nullptr || value->is_null(); }

using Ids = std::unordered_map<std::string, int32_t>;  // by the names in the file

// Names in the order of their ids, which must be 0, 1, 2, …; `is_added`: those of no word.
Result<std::vector<std::string>> names_by_id(const Json& model, const Json* added, Ids& ids,
                                             std::vector<bool>& is_added) {
  const Json* vocab = model.find("vocab");
  if (vocab == nullptr || vocab->as<Json::Object>() == nullptr)
    return invalid_argument("model.vocab is missing");
  const auto put = [&](const std::string& name, const Json* id) -> Status {
    const auto* value = id != nullptr ? id->as<int64_t>() : nullptr;
    if (value == nullptr || *value < 0 || *value >= INT32_MAX)
      return invalid_argument(cat("the id of token '", name, "' is not a small integer"));
    ids[name] = static_cast<int32_t>(*value);
    return {};
  };
  for (const Json::Member& m : *vocab->as<Json::Object>()) TEGULA_TRY(put(m.key, &m.value));
  const Ids words = ids;
  if (const auto* list = added != nullptr ? added->as<Json::Array>() : nullptr)
    for (const Json& token : *list)
      TEGULA_TRY(put(text_of(token.find("content")), token.find("id")));
  std::vector<std::string> names(ids.size());
  std::vector<bool> is_taken(ids.size());
  for (const auto& [name, id] : ids) {
    const auto at = static_cast<size_t>(id);
    if (at >= names.size() || is_taken[at])
      return invalid_argument(cat("the ids of its ", ids.size(),
                                  " tokens are not 0, 1, 2, … (see '", name, "' = ", id, ")"));
    is_taken[at] = true;
    names[at] = name;
  }
  is_added.resize(names.size());
  for (size_t id = 0; id < names.size(); ++id) is_added[id] = !words.contains(names[id]);
  return names;
}

// Merges stand as ["a", "b"] or, in older files, as "a b".
Result<std::vector<BpeMerge>> parse_merges(const Json& model, const Ids& ids) {
  std::vector<BpeMerge> merges;
  const Json* list = model.find("merges");
  if (list == nullptr || list->as<Json::Array>() == nullptr)
    return invalid_argument("model.merges is missing");
  for (const Json& entry : *list->as<Json::Array>()) {
    std::string left, right;
    if (const auto* pair = entry.as<Json::Array>(); pair != nullptr && pair->size() == 2) {
      left = text_of(&(*pair)[0]), right = text_of(&(*pair)[1]);
    } else if (const auto* text = entry.as<std::string>()) {
      const size_t space = text->find(' ');
      left = text->substr(0, space);
      right = space == text->npos ? "" : text->substr(space + 1);
    }
    const auto l = ids.find(left), r = ids.find(right), joined = ids.find(left + right);
    if (left.empty() || right.empty() || l == ids.end() || r == ids.end() || joined == ids.end())
      return invalid_argument(cat("merge ", merges.size(), " ('", left, "' with '", right,
                                  "') does not join two tokens of the vocabulary to a third"));
    merges.push_back({l->second, r->second, joined->second});
  }
  return merges;
}

Result<AddedTokens> read_added(const Json* list, const Ids& ids) {
  std::vector<AddedToken> tokens;
  if (const auto* array = list != nullptr ? list->as<Json::Array>() : nullptr)
    for (const Json& t : *array) {
      const std::string content = text_of(t.find("content"));
      if (is_true(t.find("single_word")))
        return unsupported(cat("its added token '", content, "' is to be found as a word alone"));
      const Json* normalized = t.find("normalized");
      tokens.push_back({content, ids.at(content), is_true(t.find("lstrip")),
                        is_true(t.find("rstrip")),
                        normalized != nullptr ? is_true(normalized) : !is_true(t.find("special"))});
    }
  return AddedTokens(std::move(tokens));
}

// How a byte-level tokenizer cuts words; null: not at all.
Result<FirstWord> read_words(const Json& words) {
  const auto byte_level_cut = [](const Json& w) -> Result<FirstWord> {
    if (is_true(w.find("add_prefix_space")))
      return unsupported("its pre_tokenizer adds a space in front");
    const Json* use_regex = w.find("use_regex");
    return use_regex == nullptr || is_true(use_regex) ? FirstWord{first_word} : FirstWord{};
  };
  const std::string type = text_of(words.find("type"));
  if (type == "ByteLevel") return byte_level_cut(words);
  const Json* list = words.find("pretokenizers");
  const auto* parts = list != nullptr ? list->as<Json::Array>() : nullptr;
  if (type != "Sequence" || parts == nullptr || parts->size() != 2 ||
      text_of((*parts)[0].find("type")) != "Split" ||
      text_of((*parts)[1].find("type")) != "ByteLevel")
    return unsupported(cat("its pre_tokenizer ", type, " is not a form that tegula reads"));
  const Json& split = (*parts)[0];
  const std::string behavior = text_of(split.find("behavior"));
  const bool is_inverted = is_true(split.find("invert"));
  if (!(behavior == "Isolated" && !is_inverted) && !(behavior == "Removed" && is_inverted))
    return unsupported(cat("its pre_tokenizer splits with the behavior ", behavior));
  const Json* pattern = split.find("pattern");
  const std::string regex = pattern != nullptr ? text_of(pattern->find("Regex")) : "";
  const FirstWord cut = find_word_rule(regex);
  if (cut == nullptr)
    return unsupported(
        cat("its pre_tokenizer splits by '", regex, "', not as GPT-2, Llama 3 or ", "Qwen do"));
  if (TEGULA_TRY(byte_level_cut((*parts)[1])) != nullptr && cut != first_word)
    return unsupported("its pre_tokenizer splits twice");
  return cut;
}

// Whether the file asks for nothing that load() would do otherwise.
Status check_form(const Json& json, const Json& model, const Json* words) {
  if (!is_absent(json.find("normalizer"))) return unsupported("it has a normalizer");
  for (const char* key : {"truncation", "padding"})
    if (!is_absent(json.find(key)))
      return unsupported(cat("it asks for ", key, ": set \"", key, "\" to null"));
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (!text_of(model.find(key)).empty()) return unsupported(cat("model.", key, " is set"));
  if (!is_absent(model.find("dropout"))) return unsupported("model.dropout is set");
  if (is_true(model.find("byte_fallback"))) return unsupported("model.byte_fallback is set");
  if (words == nullptr) return unsupported("it has no pre_tokenizer");
  return {};
}

}  // namespace

std::vector<std::pair<std::string, std::string>> Tokenizer::files() const {
  if (!loaded_files_.empty()) return loaded_files_;
  const auto name = [&](const std::string& token) {
    return kind_ == Kind::kChars ? char_name(token) : to_visible(token);
  };
  Json::Object vocab;
  for (size_t id = 0; id < tokens_.size(); ++id) vocab.push_back({name(tokens_[id]), id});
  Json model, words, decoder;
  if (kind_ == Kind::kChars) {
    // Without an unknown token in the vocabulary an unknown character is an error there too.
    model =
        Json::object({{"type", "WordLevel"}, {"vocab", std::move(vocab)}, {"unk_token", "<unk>"}});
    words = Json::object({{"type", "Split"},
                          {"pattern", Json::object({{"Regex", "[\\s\\S]"}})},
                          {"behavior", "Isolated"},
                          {"invert", false}});
    decoder = Json::object(
        {{"type", "Sequence"}, {"decoders", Json::Array{typed("ByteFallback"), typed("Fuse")}}});
  } else {
    Json::Array merges;
    for (const BpeMerge& m : merges_)
      merges.push_back(Json::Array{name(tokens_[static_cast<size_t>(m.left)]),
                                   name(tokens_[static_cast<size_t>(m.right)])});
    model = Json::object({{"type", "BPE"},
                          {"dropout", nullptr},
                          {"unk_token", nullptr},
                          {"continuing_subword_prefix", nullptr},
                          {"end_of_word_suffix", nullptr},
                          {"fuse_unk", false},
                          {"byte_fallback", false},
                          {"ignore_merges", false},
                          {"vocab", std::move(vocab)},
                          {"merges", std::move(merges)}});
    words = byte_level(kind_ == Kind::kBpe);
    decoder = byte_level(true);
  }
  const Json tokenizer = Json::object({{"version", "1.0"},
                                       {"truncation", nullptr},
                                       {"padding", nullptr},
                                       {"added_tokens", Json::Array()},
                                       {"normalizer", nullptr},
                                       {"pre_tokenizer", std::move(words)},
                                       {"post_processor", nullptr},
                                       {"decoder", std::move(decoder)},
                                       {"model", std::move(model)}});
  const Json config = Json::object(
      {{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}});
  return {{"tokenizer.json", tokenizer.dump(1) + "\n"},
          {"tokenizer_config.json", config.dump(2) + "\n"}};
}

Status Tokenizer::save(const std::string& directory) const {
  TEGULA_TRY(make_directories(directory));
  for (const auto& [name, content] : files())
    TEGULA_TRY(replace_file(join_path(directory, name), content));
  return {};
}

Result<Tokenizer> Tokenizer::parse(std::string_view json_text, const std::string& path) {
  const Json json = TEGULA_TRY(Json::parse(json_text, path));
  const Json* model = json.find("model");
  if (model == nullptr) return invalid_argument("it has no model");
  // Files of early versions, GPT-2's among them, do not name the type.
  const bool is_early = model->find("type") == nullptr && model->find("merges") != nullptr;
  const std::string type = is_early ? "BPE" : text_of(model->find("type"));
  const Json* words = json.find("pre_tokenizer");
  const std::string word_type = words != nullptr ? text_of(words->find("type")) : "";
  TEGULA_TRY(check_form(json, *model, words));
  Ids ids;
  std::vector<bool> is_added;
  std::vector<std::string> tokens =
      TEGULA_TRY(names_by_id(*model, json.find("added_tokens"), ids, is_added));
  Tokenizer t;
  t.added_ = TEGULA_TRY(read_added(json.find("added_tokens"), ids));
  Around around = TEGULA_TRY(read_post_processor(json.find("post_processor")));
  t.before_ = std::move(around.before), t.behind_ = std::move(around.behind);
  for (const auto* list : {&t.before_, &t.behind_})
    for (const int32_t id : *list)
      if (static_cast<size_t>(id) >= tokens.size())
        return invalid_argument(cat("its post_processor adds id ", id, " of ", tokens.size()));
  if (type == "WordLevel" && word_type == "Split") {
    for (std::string& token : tokens) token = from_char_name(token);
    TEGULA_TRY(t.set_tokens(Kind::kChars, std::move(tokens), {}, is_added));
    return t;
  }
  if (type != "BPE")
    return unsupported(cat("its model ", type, " with pre_tokenizer ", word_type,
                           " is not a form that tegula reads"));
  const FirstWord cut = TEGULA_TRY(read_words(*words));
  for (std::string& token : tokens) token = from_visible(token);
  std::vector<BpeMerge> merges = TEGULA_TRY(parse_merges(*model, ids));
  if (cut == nullptr && !merges.empty())
    return unsupported("it merges across words (use_regex is false)");
  const Kind kind = cut != nullptr ? Kind::kBpe : Kind::kBytes;
  std::unordered_map<std::string, int32_t> whole;
  if (is_true(model->find("ignore_merges")))
    for (size_t id = 0; id < tokens.size(); ++id)
      if (!is_added[id]) whole.emplace(tokens[id], static_cast<int32_t>(id));
  TEGULA_TRY(t.set_tokens(kind, std::move(tokens), std::move(merges), is_added,
                          cut != nullptr ? cut : first_word));
  t.bpe_.set_whole_words(std::move(whole));
  return t;
}

Result<Tokenizer> Tokenizer::load(const std::string& directory) {
  const std::string path = join_path(directory, "tokenizer.json");
  if (!path_exists(path))
    for (const char* other : {"tokenizer.model", "vocab.json", "vocab.txt"})
      if (path_exists(join_path(directory, other)))
        return unsupported(cat("'", directory, "' has its tokenizer in ", other, ", not in ",
                               "tokenizer.json: let transformers write one, with ",
                               "AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)"));
  const std::string text = TEGULA_TRY(read_file(path));
  auto tokenizer = parse(text, path);
  if (tokenizer.ok()) {
    tokenizer->loaded_files_ = {{"tokenizer.json", text}};
    if (const auto config = read_file(join_path(directory, "tokenizer_config.json")); config.ok())
      tokenizer->loaded_files_.emplace_back("tokenizer_config.json", *config);
    return tokenizer;
  }
  Error error = std::move(tokenizer).error();
  error.message = cat("cannot use the tokenizer '", path, "': ", error.message);
  return error;
}

}  // namespace tegula
