// Bytes as tokens, alone or merged within words: the byte-level form of tokenizer.json.

#include "tegula/base/amounts.h"
#include "tegula/io/bpe.h"
#include "tegula/io/tokenizer_kind.h"
#include "tegula/io/utf8.h"

namespace tegula {
namespace {

constexpr int64_t kMaxVocabSize = 1'000'000;

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

Json byte_level(bool use_regex) {
  return Json::object({{"type", "ByteLevel"},
                       {"add_prefix_space", false},
                       {"trim_offsets", true},
                       {"use_regex", use_regex}});
}

class ByteModel : public TokenModel {
 public:
  // `cut`: null where there are no words, and then no merges.
  static Result<Vocabulary> make(BpeVocabulary v, FirstWord cut,
                                 const std::vector<bool>& is_added = {},
                                 std::unordered_map<std::string, int32_t> whole_words = {});
  Status encode(std::string_view text, std::vector<int32_t>& ids) const override;
  Json::Object members() const override;

 private:
  BpeVocabulary v_;
  std::array<int32_t, 256> byte_ids_{};
  bool has_words_ = false;
  BpeEncoder bpe_;
};

Result<Vocabulary> ByteModel::make(BpeVocabulary v, FirstWord cut,
                                   const std::vector<bool>& is_added,
                                   std::unordered_map<std::string, int32_t> whole_words) {
  auto m = std::make_shared<ByteModel>();
  m->byte_ids_.fill(-1);
  for (size_t id = 0; id < v.tokens.size(); ++id)
    if (v.tokens[id].size() == 1 && (is_added.empty() || !is_added[id]))
      m->byte_ids_[static_cast<unsigned char>(v.tokens[id][0])] = static_cast<int32_t>(id);
  for (uint32_t b = 0; b < 256; ++b)
    if (m->byte_ids_[b] < 0)
      return invalid_argument(cat("the vocabulary lacks byte 0x", to_hex(b, 2)));
  m->has_words_ = cut != nullptr;
  if (m->has_words_) m->bpe_ = BpeEncoder(v.merges, m->byte_ids_, cut);
  m->bpe_.set_whole_words(std::move(whole_words));
  m->v_ = std::move(v);
  std::vector<std::string> tokens = m->v_.tokens;
  return Vocabulary{std::move(tokens), std::move(m)};
}

Status ByteModel::encode(std::string_view text, std::vector<int32_t>& ids) const {
  if (has_words_) {
    ids.reserve(ids.size() + text.size() / 3);
    bpe_.encode(text, ids);
    return {};
  }
  const size_t before = ids.size();
  ids.resize(before + text.size());
  for (size_t i = 0; i < text.size(); ++i)
    ids[before + i] = byte_ids_[static_cast<unsigned char>(text[i])];
  return {};
}

Json::Object ByteModel::members() const {
  const auto name = [&](int32_t id) { return to_visible(v_.tokens[static_cast<size_t>(id)]); };
  Json::Object vocab;
  for (size_t id = 0; id < v_.tokens.size(); ++id)
    vocab.push_back({name(static_cast<int32_t>(id)), id});
  Json::Array merges;
  for (const BpeMerge& m : v_.merges) merges.push_back(Json::Array{name(m.left), name(m.right)});
  return {{"model", Json::object({{"type", "BPE"},
                                  {"dropout", nullptr},
                                  {"unk_token", nullptr},
                                  {"continuing_subword_prefix", nullptr},
                                  {"end_of_word_suffix", nullptr},
                                  {"fuse_unk", false},
                                  {"byte_fallback", false},
                                  {"ignore_merges", false},
                                  {"vocab", std::move(vocab)},
                                  {"merges", std::move(merges)}})},
          {"pre_tokenizer", byte_level(has_words_)},
          {"decoder", byte_level(true)}};
}

Result<Vocabulary> train_bytes(std::string_view, std::string_view) {
  BpeVocabulary v;
  for (int b = 0; b < 256; ++b) v.tokens.emplace_back(1, static_cast<char>(b));
  return ByteModel::make(std::move(v), nullptr);
}

Result<Vocabulary> train_bpe_of(std::string_view name, std::string_view text) {
  const auto n = read_count(name.substr(name.find(':') + 1), 256, kMaxVocabSize);
  if (!n.ok())
    return invalid_argument(cat("tokenizer '", name, "': bpe:N needs a vocabulary size N from 256 ",
                                "(the bytes alone) to ", kMaxVocabSize));
  return ByteModel::make(train_bpe(text, *n), first_word);
}

// Merges stand as ["a", "b"] or, in older files, as "a b".
Result<std::vector<BpeMerge>> parse_merges(const TokenizerFile& f) {
  std::vector<BpeMerge> merges;
  const Json* list = f.model.find("merges");
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
    const auto l = f.ids.find(left), r = f.ids.find(right), joined = f.ids.find(left + right);
    if (left.empty() || right.empty() || l == f.ids.end() || r == f.ids.end() ||
        joined == f.ids.end())
      return invalid_argument(cat("merge ", merges.size(), " ('", left, "' with '", right,
                                  "') does not join two tokens of the vocabulary to a third"));
    merges.push_back({l->second, r->second, joined->second});
  }
  return merges;
}

// How words are cut; null: not at all.
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
  const WordRule* rule = find_word_rule(regex);
  if (rule == nullptr)
    return unsupported(
        cat("its pre_tokenizer splits by '", regex, "', not as ", word_rule_names(), " do"));
  if (TEGULA_TRY(byte_level_cut((*parts)[1])) != nullptr && rule->cut != first_word)
    return unsupported("its pre_tokenizer splits twice");
  return rule->cut;
}

bool is_it(const TokenizerFile& f) { return f.model_type == "BPE"; }

bool is_bytes(const TokenizerFile& f) {
  const Json* merges = f.model.find("merges");
  const auto* list = merges != nullptr ? merges->as<Json::Array>() : nullptr;
  const auto cut = read_words(f.words);
  return is_it(f) && list != nullptr && list->empty() && cut.ok() && *cut == nullptr;
}

Result<Vocabulary> read(const TokenizerFile& f) {
  const FirstWord cut = TEGULA_TRY(read_words(f.words));
  BpeVocabulary v;
  for (const std::string& name : f.names) v.tokens.push_back(from_visible(name));
  v.merges = TEGULA_TRY(parse_merges(f));
  if (cut == nullptr && !v.merges.empty())
    return unsupported("it merges across words (use_regex is false)");
  std::unordered_map<std::string, int32_t> whole;
  if (is_true(f.model.find("ignore_merges")))
    for (size_t id = 0; id < v.tokens.size(); ++id)
      if (!f.is_added[id]) whole.emplace(v.tokens[id], static_cast<int32_t>(id));
  return ByteModel::make(std::move(v), cut, f.is_added, std::move(whole));
}

}  // namespace

const TokenizerKind kBytesTokenizer{"bytes", train_bytes, is_bytes, read};
const TokenizerKind kBpeTokenizer{"bpe:N", train_bpe_of, is_it, read};

}  // namespace tegula
