// WordPiece (BERT, MiniLM): a word is cut, from its beginning, into the longest pieces that the
// vocabulary has, of which all but the first have a prefix ("##"); a word that cannot be cut so is
// the unknown token, and so is one of too many characters.
// Cost: linear in the text, times the length of the longest token.
// Source: Wu et al. 2016; Devlin et al. 2019.
#include "tegula/base/algorithm.h"
#include "tegula/io/utf8.h"
#include "tegula/text/tokenizer_kind.h"

namespace tegula {
namespace {

class WordPieceModel : public TokenModel {
 public:
  Status encode(std::string_view text, bool is_first, std::vector<int32_t>& ids) const override;
  Json::Object members() const override { return {}; }

  void append(std::string_view word, std::vector<int32_t>& ids) const;

  Words words;
  std::unordered_map<std::string, int32_t> beginnings, others;  // others: without the prefix
  size_t longest = 0;                                           // in bytes
  size_t most_characters = 100;
  int32_t unknown = 0;
};

Status WordPieceModel::encode(std::string_view text, bool is_first,
                              std::vector<int32_t>& ids) const {
  struct Sink : WordSink {
    Sink(const WordPieceModel& model, std::vector<int32_t>& ids) : model(model), ids(ids) {}
    void take(std::string_view word) override { model.append(word, ids); }
    const WordPieceModel& model;
    std::vector<int32_t>& ids;
  } sink(*this, ids);
  words.cut(text, is_first, sink);
  return {};
}

void WordPieceModel::append(std::string_view word, std::vector<int32_t>& ids) const {
  size_t n_characters = 0;
  for (size_t at = 0; at < word.size(); at += first_code_point(word.substr(at)).n_bytes)
    ++n_characters;
  const size_t before = ids.size();
  bool is_known = n_characters <= most_characters;
  for (size_t at = 0; is_known && at < word.size();) {
    const auto& pieces = at == 0 ? beginnings : others;
    is_known = false;
    for (size_t n = std::min(longest, word.size() - at); n > 0; --n) {
      // No token ends within a character.
      if (at + n < word.size() && (static_cast<unsigned char>(word[at + n]) & 0xc0) == 0x80)
        continue;
      const auto piece = pieces.find(std::string(word.substr(at, n)));
      if (piece == pieces.end()) continue;
      ids.push_back(piece->second);
      at += n;
      is_known = true;
      break;
    }
  }
  if (is_known) return;
  ids.resize(before);
  ids.push_back(unknown);
}

bool is_it(const TokenizerFile& f) { return f.model_type == "WordPiece"; }

Result<std::shared_ptr<const TokenModel>> read(const TokenizerFile& f) {
  TEGULA_TRY(
      check_keys(f.model, "model",
                 {"unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"}));
  if (f.words.is_byte_level()) return unsupported("its model WordPiece follows ByteLevel");
  auto m = std::make_shared<WordPieceModel>();
  m->words = f.words;
  const Json* given = f.model.find("continuing_subword_prefix");
  const std::string prefix = given == nullptr ? "##" : text_of(given);
  if (const Json* most = f.model.find("max_input_chars_per_word")) {
    const double n = most->number(-1);
    if (!(n >= 0 && n <= 1000))
      return unsupported("model.max_input_chars_per_word is not from 0 to 1000");
    m->most_characters = static_cast<size_t>(n);
  }
  const std::string unknown = text_of(f.model.find("unk_token"));
  const auto at = f.ids.find(unknown);
  if (at == f.ids.end() || f.is_added[static_cast<size_t>(at->second)])
    return invalid_argument(cat("model.unk_token '", unknown, "' is not in model.vocab"));
  m->unknown = at->second;
  for (size_t id = 0; id < f.names.size(); ++id) {
    const std::string& name = f.names[id];
    if (f.is_added[id] || name.empty()) continue;
    m->longest = std::max(m->longest, name.size());
    m->beginnings.emplace(name, static_cast<int32_t>(id));
    if (name.starts_with(prefix))
      m->others.emplace(name.substr(prefix.size()), static_cast<int32_t>(id));
  }
  return m;
}

}  // namespace

const TokenizerKind kWordPieceTokenizer{"wordpiece", nullptr, is_it, read};

}  // namespace tegula
