// Bytes as tokens, alone or merged within words: the byte-level form of tokenizer.json.

#include "tegula/base/amounts.h"
#include "tegula/text/bpe_model.h"
#include "tegula/text/decoder.h"

namespace tegula {
namespace {

constexpr int64_t kMaxVocabSize = 1'000'000;

Json byte_level(bool use_regex) {
  return Json::object({{"type", "ByteLevel"},
                       {"add_prefix_space", false},
                       {"trim_offsets", true},
                       {"use_regex", use_regex}});
}

// What was trained here, and can say all of itself.
class TrainedModel : public BpeModel {
 public:
  TrainedModel(BpeVocabulary v, FirstWord cut)
      : BpeModel(Words::by(cut), bytes_first(), v.merges), v_(std::move(v)), cut_(cut) {}
  Json::Object members() const override;
  static Vocabulary make(BpeVocabulary v, FirstWord cut) {
    std::vector<std::string> tokens = v.tokens;
    return {std::move(tokens), std::make_shared<const TrainedModel>(std::move(v), cut)};
  }

 private:
  static BpeAlphabet bytes_first() {
    BpeAlphabet alphabet;
    for (size_t b = 0; b < 256; ++b) alphabet.bytes[b] = static_cast<int32_t>(b);
    return alphabet;
  }
  BpeVocabulary v_;
  FirstWord cut_;
};

Json::Object TrainedModel::members() const {
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
          {"pre_tokenizer", byte_level(cut_ != nullptr)},
          {"decoder", byte_level(true)}};
}

Result<Vocabulary> train_bytes(std::string_view, std::string_view) {
  BpeVocabulary v;
  for (int b = 0; b < 256; ++b) v.tokens.emplace_back(1, static_cast<char>(b));
  return TrainedModel::make(std::move(v), nullptr);
}

Result<Vocabulary> train_bpe_of(std::string_view name, std::string_view text) {
  const auto n = read_count(name.substr(name.find(':') + 1), 256, kMaxVocabSize);
  if (!n.ok())
    return invalid_argument(cat("tokenizer '", name, "': bpe:N needs a vocabulary size N from 256 ",
                                "(the bytes alone) to ", kMaxVocabSize));
  return TrainedModel::make(train_bpe(text, *n), first_word);
}

bool is_it(const TokenizerFile& f) { return f.model_type == "BPE" && f.words.is_byte_level(); }

bool is_bytes(const TokenizerFile& f) {
  const auto* list = f.model.find_as<Json::Array>("merges");
  return is_it(f) && list != nullptr && list->empty() && f.words.is_whole();
}

Result<std::shared_ptr<const TokenModel>> read(const TokenizerFile& f) {
  BpeAlphabet alphabet;
  TEGULA_TRY(read_bpe_settings(f, alphabet));
  if (is_true(f.model.find("byte_fallback")))
    return unsupported("model.byte_fallback is set beside ByteLevel");
  std::unordered_map<std::string, int32_t> whole;
  std::string bytes;
  for (size_t id = 0; id < f.names.size(); ++id) {
    // A byte that the vocabulary lacks has the unknown token or none, as in the library.
    if (f.is_added[id] || !from_visible(f.names[id], bytes)) continue;
    if (bytes.size() == 1)
      alphabet.bytes[static_cast<unsigned char>(bytes[0])] = static_cast<int32_t>(id);
    if (is_true(f.model.find("ignore_merges"))) whole.emplace(bytes, static_cast<int32_t>(id));
  }
  const auto merges = TEGULA_TRY(read_merges(f));
  auto m = std::make_shared<BpeModel>(f.words, alphabet, merges);
  m->set_whole_words(std::move(whole));
  return m;
}

}  // namespace

const TokenizerKind kBytesTokenizer{"bytes", train_bytes, is_bytes, read};
const TokenizerKind kBpeTokenizer{"bpe:N", train_bpe_of, is_it, read};

}  // namespace tegula
