// A tokenizer.json as the keys of a GGUF file.
#include <unordered_map>
#include <unordered_set>

#include "tegula/text/decoder.h"
#include "tegula/text/gguf_tokenizer.h"
#include "tegula/text/gguf_words.h"
#include "tegula/text/json_form.h"
#include "tegula/text/post_processor.h"

namespace tegula {
namespace {

constexpr std::string_view kSpace = "\xe2\x96\x81";  // U+2581
enum TokenType : int32_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

class Keys {
 public:
  Keys(const Json& json, const std::string& path, int64_t n, std::vector<std::string>& notes)
      : json_(json), path_(path), n_(static_cast<size_t>(n)), notes_(notes) {}
  Result<std::vector<GgufOutKey>> make();

 private:
  Error other(std::string_view what) const {
    return unsupported(cat("'", path_, "': its tokenizer has no form in GGUF: ", what));
  }
  void put(std::string_view key, GgufOutKey::Value value) {
    keys_.push_back({cat("tokenizer.ggml.", key), std::move(value)});
  }
  Status read_tokens();
  Result<std::vector<std::pair<std::string, std::string>>> merges() const;
  Status byte_level();
  Status sentencepiece();
  Status around();

  const Json& json_;
  const std::string& path_;
  size_t n_;
  std::vector<std::string>& notes_;
  std::vector<std::string> names_;
  std::vector<int32_t> types_;
  std::vector<GgufOutKey> keys_;
};

Status Keys::read_tokens() {
  const Json* model = json_.find("model");
  const Json* vocab = model != nullptr ? model->find("vocab") : nullptr;
  const auto* members = vocab != nullptr ? vocab->as<Json::Object>() : nullptr;
  if (members == nullptr) return other("its vocabulary is no list of names with ids");
  for (size_t i = 0; i < n_; ++i) {  // rows of the model that no text has
    names_.push_back(cat("[PAD", i, "]"));
    types_.push_back(kUnused);
  }
  const auto name = [&](const Json* id, const std::string& content, int32_t type) -> Status {
    const auto* i = id != nullptr ? id->as<int64_t>() : nullptr;
    if (i == nullptr || *i < 0 || static_cast<size_t>(*i) >= n_)
      return other(cat("the token '", content, "' has no id below ", n_));
    names_[static_cast<size_t>(*i)] = content, types_[static_cast<size_t>(*i)] = type;
    return {};
  };
  for (const Json::Member& m : *members) TEGULA_TRY(name(&m.value, m.key, kNormal));
  int64_t n_strips = 0;
  for (const Json& t : list_of(json_.find("added_tokens"))) {
    const bool is_special = is_true(t.find("special"));
    TEGULA_TRY(
        name(t.find("id"), text_of(t.find("content")), is_special ? kControl : kUserDefined));
    n_strips += is_true(t.find("lstrip")) || is_true(t.find("rstrip"));
  }
  if (n_strips > 0)
    notes_.push_back(cat(n_strips, " added tokens take white space around them along (lstrip, ",
                         "rstrip), which GGUF does not say"));
  return {};
}

Result<std::vector<std::pair<std::string, std::string>>> Keys::merges() const {
  std::vector<std::pair<std::string, std::string>> all;
  for (const Json& m : list_of(json_.find("model")->find("merges"))) {
    if (const auto* pair = m.as<Json::Array>(); pair != nullptr && pair->size() == 2) {
      all.emplace_back(text_of(&(*pair)[0]), text_of(&(*pair)[1]));
    } else {
      const std::string both = text_of(&m);
      const size_t space = both.find(' ', 1);
      if (space == both.npos) return other(cat("the merge '", both, "' names no two tokens"));
      all.emplace_back(both.substr(0, space), both.substr(space + 1));
    }
  }
  return all;
}

Status Keys::around() {
  const Around around = TEGULA_TRY(read_post_processor(json_.find("post_processor")));
  if (around.before.size() > 1 || around.behind.size() > 1)
    return other("it puts several ids before or behind a text");
  if (!around.before.empty()) put("bos_token_id", static_cast<uint32_t>(around.before[0]));
  if (!around.behind.empty()) {
    notes_.push_back(cat("the id ", around.behind[0], " behind every text is GGUF's eos_token_id, ",
                         "if that is its end of text"));
    put("add_eos_token", true);
  }
  put("add_bos_token", !around.before.empty());
  return {};
}

Status Keys::byte_level() {
  const Json& model = *json_.find("model");
  const auto list = TEGULA_TRY(merges());
  const Json* cut = json_.find("pre_tokenizer");
  const GgufWords* words =
      cut != nullptr ? words_like(*cut, is_true(model.find("ignore_merges"))) : nullptr;
  // Without merges every byte is a token, however words are cut.
  if (words == nullptr && list.empty()) words = find_gguf_words("gpt-2");
  if (words == nullptr)
    return other(
        cat("its words are cut in none of the ways that have a name (", gguf_words_names(), ")"));
  std::string bytes;
  size_t n_bytes = 0;
  for (const std::string& name : names_) n_bytes += from_visible(name, bytes) && bytes.size() == 1;
  if (n_bytes < 256 && !text_of(model.find("unk_token")).empty())
    return other("bytes that its vocabulary lacks become its unknown token");
  if (const Json* normalizer = json_.find("normalizer"); !is_absent(normalizer)) {
    const std::string type = text_of(normalizer->find("type"));
    if (type != "NFC") return other(cat("it normalises texts by ", type));
    notes_.push_back(
        "the tokenizer's normaliser NFC is not kept: GGUF has none, and texts must be NFC already");
  }
  put("model", std::string("gpt2"));
  put("pre", std::string(words->names.substr(0, words->names.find(' '))));
  std::vector<std::string> both;
  for (const auto& [left, right] : list) both.push_back(cat(left, " ", right));
  put("merges", std::move(both));
  return around();
}

// Tokens have the score of the first merge that makes them, so that the merges follow again.
Status Keys::sentencepiece() {
  const Json& model = *json_.find("model");
  if (!is_true(model.find("byte_fallback")))
    return other("characters have no bytes to fall back on");
  const Json* normalizer = json_.find("normalizer");
  const std::string form = normalizer != nullptr ? normalizer->dump() : "";
  const std::string replace =
      R"({"type":"Replace","pattern":{"String":" "},"content":")" + std::string(kSpace) + R"("})";
  const Json plain = TEGULA_TRY(Json::parse(replace, path_));
  const Json prepended = TEGULA_TRY(
      Json::parse(cat(R"({"type":"Sequence","normalizers":[{"type":"Prepend","prepend":")", kSpace,
                      R"("},)", replace, "]}"),
                  path_));
  const bool has_prefix = form == prepended.dump();
  if (!has_prefix && form != plain.dump())
    return other(cat("its normaliser ", form.substr(0, 80), " is not SentencePiece's"));
  // Gemma's files cut at spaces, of which none are left.
  const Json* cut = json_.find("pre_tokenizer");
  if (!is_absent(cut) && text_of(cut->find("type")) != "Split")
    return other(cat("its pre_tokenizer ", text_of(cut->find("type"))));
  std::unordered_map<std::string, float> scores;
  std::unordered_set<std::string> known, pairs;
  for (const std::string& name : names_) known.insert(name);
  float next = 0;
  for (const auto& [left, right] : TEGULA_TRY(merges())) {
    if (scores.try_emplace(left + right, next).second) next -= 1;
    pairs.insert(cat(left, "\n", right));
  }
  int64_t n_more = 0;
  for (const auto& [name, score] : scores)
    for (size_t n = 1; n < name.size(); ++n) {
      const std::string left = name.substr(0, n), right = name.substr(n);
      n_more +=
          known.contains(left) && known.contains(right) && !pairs.contains(cat(left, "\n", right));
    }
  if (n_more > 0)
    notes_.push_back(cat(n_more, " pairs of tokens make another one though no merge joins them: ",
                         "GGUF has scores in place of merges, so that some texts get other ids"));
  std::vector<float> each;
  for (size_t i = 0; i < names_.size(); ++i) {
    const std::string& name = names_[i];
    const auto score = scores.find(name);
    each.push_back(score != scores.end() ? score->second : types_[i] == kNormal ? next : 0);
    if (types_[i] == kNormal && name.size() == 6 && name.starts_with("<0x") && name[5] == '>')
      types_[i] = kByte;
    if (name == text_of(model.find("unk_token"))) types_[i] = kUnknown;
  }
  put("model", std::string("llama"));
  put("pre", std::string("default"));
  put("scores", std::move(each));
  put("add_space_prefix", has_prefix);
  return around();
}

Result<std::vector<GgufOutKey>> Keys::make() {
  const Json* model = json_.find("model");
  if (model == nullptr) return other("it has no model");
  const std::string type = text_of(model->find("type"));
  const bool is_bpe = type == "BPE" || (type.empty() && model->find("merges") != nullptr);
  if (!is_bpe) return other(cat("its model ", type, " is no BPE"));
  TEGULA_TRY(read_tokens());
  const Json* decoder = json_.find("decoder");
  const bool is_byte_level = decoder != nullptr && text_of(decoder->find("type")) == "ByteLevel";
  TEGULA_TRY(is_byte_level ? byte_level() : sentencepiece());
  put("tokens", std::move(names_));
  put("token_type", std::move(types_));
  return std::move(keys_);
}

}  // namespace

Result<std::vector<GgufOutKey>> gguf_keys_of(const Json& tokenizer, const std::string& path,
                                             int64_t n, std::vector<std::string>& notes) {
  return Keys(tokenizer, path, n, notes).make();
}

}  // namespace tegula
