#include "tegula/text/gguf_tokenizer.h"

#include <unordered_map>

#include "tegula/base/range.h"
#include "tegula/io/utf8.h"
#include "tegula/text/gguf_words.h"
#include "tegula/text/json_form.h"

namespace tegula {
namespace {

constexpr std::string_view kPrefix = "tokenizer.ggml.";
constexpr std::string_view kSpace = "\xe2\x96\x81";  // U+2581
// Keys that say nothing about a text's ids: names of ids that nobody puts into texts.
constexpr std::string_view kHarmless =
    " padding_token_id mask_token_id seperator_token_id separator_token_id cls_token_id "
    "eot_token_id eom_token_id eog_token_ids prefix_token_id suffix_token_id "
    "middle_token_id fim_pre_token_id fim_suf_token_id fim_mid_token_id fim_pad_token_id "
    "fim_rep_token_id fim_sep_token_id ";
constexpr std::string_view kRead =
    " model pre tokens token_type scores merges bos_token_id eos_token_id add_bos_token "
    "add_eos_token add_space_prefix unknown_token_id ";

enum TokenType : int64_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

struct Tokens {
  std::vector<std::string_view> names;
  std::vector<int64_t> types;
  // Found in text whole, as llama.cpp does.
  bool is_added(size_t i) const {
    return types[i] == kControl || types[i] == kUserDefined || types[i] == kUnknown;
  }
};

class Form {
 public:
  explicit Form(const GgufFile& file) : file_(file) {}
  Result<Json> read();

 private:
  const GgufValue* find(std::string_view key) const { return file_.find(cat(kPrefix, key)); }
  Error wrong(std::string_view key, std::string_view what) const {
    return invalid_argument(cat("'", file_.path(), "': key ", kPrefix, key, ": ", what));
  }
  Error other(std::string_view key, std::string_view what) const {
    return unsupported(cat("'", file_.path(), "': key ", kPrefix, key, ": ", what));
  }
  Status check_keys() const;
  Result<std::string> text(std::string_view key) const;
  Result<bool> flag(std::string_view key, bool otherwise) const;
  Result<int64_t> id(std::string_view key) const;
  Status read_tokens();
  Result<Json> byte_level() const;
  Result<Json> sentencepiece() const;
  Result<Json> around(bool begins, bool ends) const;
  Json added() const;
  Json vocab(bool has_added) const;
  Json whole(Json model, Json normalizer, Json words, Json decoder, Json around) const;
  const GgufFile& file_;
  Tokens tokens_;
};

Status Form::check_keys() const {
  for (const GgufKey& k : file_.keys()) {
    if (!k.name.starts_with("tokenizer.")) continue;
    if (k.name.starts_with("tokenizer.chat_template") || k.name == "tokenizer.huggingface.json")
      continue;
    const std::string word = cat(" ", k.name.substr(std::min(kPrefix.size(), k.name.size())), " ");
    const bool is_known = k.name.starts_with(kPrefix) && (kRead.find(word) != kRead.npos ||
                                                          kHarmless.find(word) != kHarmless.npos);
    // A setting that is off says nothing.
    const bool is_off = k.value.flag() == false;
    if (!is_known && !is_off)
      return unsupported(cat("'", file_.path(), "': tegula does not compute the key ", k.name, ": ",
                             k.value.shown()));
  }
  return {};
}

Result<std::string> Form::text(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::string();
  const auto t = value->text();
  if (!t) return wrong(key, cat("it is ", value->shown(), ", not a string"));
  return std::string(*t);
}

Result<bool> Form::flag(std::string_view key, bool otherwise) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return otherwise;
  const auto b = value->flag();
  if (!b) return wrong(key, cat("it is ", value->shown(), ", not a bool"));
  return *b;
}

Result<int64_t> Form::id(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return int64_t{-1};
  const auto i = value->whole();
  if (!i || *i < 0 || *i >= static_cast<int64_t>(tokens_.names.size()))
    return wrong(key, cat("it is ", value->shown(), ", not one of the ids of ",
                          tokens_.names.size(), " tokens"));
  return *i;
}

Status Form::read_tokens() {
  const GgufValue* names = find("tokens");
  if (names == nullptr || names->type() != GgufType::kArray ||
      names->element_type() != GgufType::kString || names->size() == 0)
    return wrong("tokens", names ? "it is no list of strings" : "it is missing");
  for (const GgufValue& v : names->elements()) tokens_.names.push_back(*v.text());
  const GgufValue* types = find("token_type");
  if (types == nullptr || !types->is_array() || types->size() != names->size())
    return wrong("token_type",
                 types ? cat("it is ", types->shown(), ", and there are ", names->size(), " tokens")
                       : "it is missing");
  for (const GgufValue& v : types->elements()) {
    const auto t = v.whole();
    if (!t || *t < 0 || *t > kByte)
      return wrong("token_type", cat("it has ", v.shown(), ", which is no type of a token"));
    tokens_.types.push_back(*t);
  }
  // Rows of the embedding that no text has.
  while (!tokens_.names.empty() && tokens_.types.back() == kUnused &&
         tokens_.names.back() == cat("[PAD", tokens_.names.size() - 1, "]"))
    tokens_.names.pop_back(), tokens_.types.pop_back();
  for (size_t i = 0; i < tokens_.names.size(); ++i)
    for (std::string_view rest = tokens_.names[i]; !rest.empty();) {
      const CodePoint c = first_code_point(rest);
      if (!c.is_valid) return wrong("tokens", cat("the token ", i, " is not UTF-8"));
      rest.remove_prefix(c.n_bytes);
    }
  return {};
}

Json Form::added() const {
  Json::Array list;
  for (size_t i = 0; i < tokens_.names.size(); ++i)
    if (tokens_.is_added(i))
      list.push_back(Json::object({{"id", i},
                                   {"content", tokens_.names[i]},
                                   {"single_word", false},
                                   {"lstrip", false},
                                   {"rstrip", false},
                                   {"normalized", false},
                                   {"special", tokens_.types[i] != kUserDefined}}));
  return list;
}

Json Form::vocab(bool has_added) const {
  Json::Object all;
  for (size_t i = 0; i < tokens_.names.size(); ++i)
    if (has_added || !tokens_.is_added(i)) all.push_back({std::string(tokens_.names[i]), i});
  return all;
}

Json Form::whole(Json model, Json normalizer, Json words, Json decoder, Json around) const {
  return Json::object({{"version", "1.0"},
                       {"truncation", nullptr},
                       {"padding", nullptr},
                       {"added_tokens", added()},
                       {"normalizer", std::move(normalizer)},
                       {"pre_tokenizer", std::move(words)},
                       {"post_processor", std::move(around)},
                       {"decoder", std::move(decoder)},
                       {"model", std::move(model)}});
}

// The ids that stand before and behind every text.
Result<Json> Form::around(bool begins, bool ends) const {
  begins = TEGULA_TRY(flag("add_bos_token", begins));
  ends = TEGULA_TRY(flag("add_eos_token", ends));
  if (!begins && !ends) return Json();
  Json::Array single, pair;
  Json special = Json::object();
  const auto put = [&](std::string_view key, std::string_view flag) -> Status {
    const int64_t at = TEGULA_TRY(id(key));
    if (at < 0) return wrong(key, cat("it is missing, and ", flag, " asks for it"));
    const std::string_view name = tokens_.names[at];
    single.push_back(
        Json::object({{"SpecialToken", Json::object({{"id", name}, {"type_id", 0}})}}));
    special.set(name, Json::object(
                          {{"id", name}, {"ids", Json::Array{at}}, {"tokens", Json::Array{name}}}));
    return {};
  };
  const auto text = [](const char* name, int type) {
    return Json::object({{"Sequence", Json::object({{"id", name}, {"type_id", type}})}});
  };
  if (begins) TEGULA_TRY(put("bos_token_id", "add_bos_token"));
  single.push_back(text("A", 0));
  if (ends) TEGULA_TRY(put("eos_token_id", "add_eos_token"));
  for (const Json& part : single) pair.push_back(part);
  pair.push_back(text("B", 1));
  return Json::object({{"type", "TemplateProcessing"},
                       {"single", std::move(single)},
                       {"pair", std::move(pair)},
                       {"special_tokens", std::move(special)}});
}

Json bpe_model(Json vocab, Json merges, Json unknown, bool is_spm, bool is_whole_first) {
  return Json::object({{"type", "BPE"},
                       {"dropout", nullptr},
                       {"unk_token", std::move(unknown)},
                       {"continuing_subword_prefix", nullptr},
                       {"end_of_word_suffix", nullptr},
                       {"fuse_unk", is_spm},
                       {"byte_fallback", is_spm},
                       {"ignore_merges", is_whole_first},
                       {"vocab", std::move(vocab)},
                       {"merges", std::move(merges)}});
}

Result<Json> Form::byte_level() const {
  const std::string pre = TEGULA_TRY(text("pre"));
  const GgufWords* words = find_gguf_words(pre.empty() ? "default" : pre);
  if (words == nullptr)
    return other("pre", cat("'", pre, "' is not a way to cut words that tegula knows (",
                            gguf_words_names(), ")"));
  const GgufValue* merges = find("merges");
  if (merges == nullptr || !merges->is_array() || merges->element_type() != GgufType::kString)
    return wrong("merges", merges ? "it is no list of strings" : "it is missing");
  Json::Array list;
  for (const GgufValue& m : merges->elements()) {
    const std::string_view both = *m.text();
    const size_t space = both.find(' ', 1);
    if (both.empty() || space == both.npos)
      return wrong("merges", cat("'", both.substr(0, 40), "' names no two tokens"));
    list.push_back(Json::Array{both.substr(0, space), both.substr(space + 1)});
  }
  const Json decoder = Json::object({{"type", "ByteLevel"},
                                     {"add_prefix_space", false},
                                     {"trim_offsets", true},
                                     {"use_regex", true}});
  return whole(bpe_model(vocab(false), std::move(list), nullptr, false, words->is_whole_first),
               nullptr, pre_tokenizer_of(*words), decoder,
               TEGULA_TRY(around(words->begins_with_bos, false)));
}

struct Merge {
  std::string_view left, right;
  float score;
  size_t left_id, right_id;
};

// All pairs of tokens that make a token, as its score says; of equal ones, long before short.
Json merges_by_score(const Tokens& tokens, const std::vector<float>& scores) {
  std::unordered_map<std::string_view, size_t> ids;
  for (size_t i = 0; i < tokens.names.size(); ++i)
    if (tokens.types[i] == kNormal || tokens.types[i] == kUserDefined) ids[tokens.names[i]] = i;
  std::vector<Merge> merges;
  for (const auto& [name, id] : ids) {
    for (size_t n = 1; n < name.size(); ++n) {
      if ((name[n] & 0xc0) == 0x80) continue;  // inside of a character
      const auto left = ids.find(name.substr(0, n)), right = ids.find(name.substr(n));
      if (left == ids.end() || right == ids.end()) continue;
      merges.push_back({left->first, right->first, scores[id], left->second, right->second});
    }
  }
  std::sort(merges.begin(), merges.end(), [](const Merge& a, const Merge& b) {
    if (a.score != b.score) return a.score > b.score;
    if (a.left.size() != b.left.size()) return a.left.size() > b.left.size();
    if (a.right.size() != b.right.size()) return a.right.size() > b.right.size();
    return a.left_id != b.left_id ? a.left_id < b.left_id : a.right_id < b.right_id;
  });
  Json::Array list;
  list.reserve(merges.size());
  for (const Merge& m : merges) list.push_back(Json::Array{m.left, m.right});
  return list;
}

Result<Json> Form::sentencepiece() const {
  const GgufValue* scores = find("scores");
  if (scores == nullptr || !scores->is_array() || scores->element_type() != GgufType::kF32 ||
      scores->size() < tokens_.names.size())
    return wrong("scores", scores ? cat("it is ", scores->shown(), ", not a number for each of ",
                                        tokens_.names.size(), " tokens")
                                  : "it is missing");
  std::vector<float> each;
  for (const GgufValue& v : scores->elements()) each.push_back(static_cast<float>(*v.number()));
  if (any_of(each, [](float x) { return x != x; }))
    return wrong("scores", "one of them is no number");
  Json unknown;
  if (const int64_t said = TEGULA_TRY(id("unknown_token_id")); said >= 0)
    unknown = Json(tokens_.names[said]);
  for (size_t i = 0; i < tokens_.names.size(); ++i)
    if (tokens_.types[i] == kUnknown && unknown.is_null()) unknown = Json(tokens_.names[i]);
  const bool has_prefix = TEGULA_TRY(flag("add_space_prefix", true));
  const Json replace = Json::object(
      {{"type", "Replace"}, {"pattern", Json::object({{"String", " "}})}, {"content", kSpace}});
  Json normalizer = replace;
  Json::Array decoders{
      Json::object(
          {{"type", "Replace"}, {"pattern", Json::object({{"String", kSpace}})}, {"content", " "}}),
      Json::object({{"type", "ByteFallback"}}), Json::object({{"type", "Fuse"}})};
  if (has_prefix) {
    const Json prepend = Json::object({{"type", "Prepend"}, {"prepend", kSpace}});
    normalizer =
        Json::object({{"type", "Sequence"}, {"normalizers", Json::Array{prepend, replace}}});
    decoders.push_back(
        Json::object({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}));
  }
  const Json decoder = Json::object({{"type", "Sequence"}, {"decoders", std::move(decoders)}});
  Json merges = merges_by_score(tokens_, each);
  return whole(bpe_model(vocab(true), std::move(merges), std::move(unknown), true, false),
               std::move(normalizer), nullptr, decoder, TEGULA_TRY(around(true, false)));
}

Result<Json> Form::read() {
  const std::string model = TEGULA_TRY(text("model"));
  if (model.empty() || model == "none" || model == "no_vocab")
    return invalid_argument(
        cat("'", file_.path(), "' has no tokenizer: give token ids, or a file ", "that has one"));
  if (model != "gpt2" && model != "llama")
    return other("model",
                 cat("'", model, "' is not a tokenizer that tegula reads from a GGUF file ",
                     "(gpt2, llama)"));
  TEGULA_TRY(check_keys());
  TEGULA_TRY(read_tokens());
  return model == "gpt2" ? byte_level() : sentencepiece();
}

}  // namespace

Result<Json> tokenizer_json_of(const GgufFile& file) { return Form(file).read(); }

std::string gguf_tokenizer_kind(const GgufFile& file) {
  std::string kind;
  for (const char* key : {"model", "pre"})
    if (const GgufValue* v = file.find(cat(kPrefix, key)); v != nullptr && v->text())
      kind += cat(kind.empty() ? "" : " ", *v->text());
  return kind;
}

Json gguf_special_tokens(const GgufFile& file) {
  Json json = Json::object();
  const GgufValue* tokens = file.find(cat(kPrefix, "tokens"));
  if (tokens == nullptr || tokens->element_type() != GgufType::kString) return json;
  const auto all = tokens->elements();
  for (const auto& [key, name] : {std::pair{"bos_token_id", "bos_token"},
                                  {"eos_token_id", "eos_token"},
                                  {"unknown_token_id", "unk_token"},
                                  {"padding_token_id", "pad_token"}}) {
    const GgufValue* id = file.find(cat(kPrefix, key));
    const int64_t i = id != nullptr ? id->whole().value_or(-1) : -1;
    if (i >= 0 && static_cast<size_t>(i) < all.size()) json.set(name, *all[i].text());
  }
  return json;
}

Json generation_of(const GgufFile& file) {
  Json::Array ends;
  for (const char* key : {"eos_token_id", "eot_token_id", "eom_token_id"})
    if (const GgufValue* v = file.find(cat(kPrefix, key)); v != nullptr && v->whole())
      if (!contains(ends, Json(*v->whole()))) ends.push_back(*v->whole());
  Json json = Json::object();
  if (const GgufValue* v = file.find(cat(kPrefix, "bos_token_id")); v != nullptr && v->whole())
    json.set("bos_token_id", *v->whole());
  if (!ends.empty()) json.set("eos_token_id", std::move(ends));
  return json;
}

}  // namespace tegula
