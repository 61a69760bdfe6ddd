// TokenizerKind: how one kind of tokenizer learns, makes ids of text, and is kept in
// tokenizer.json.
//
// A kind is a file with one of these, and a row of the table in tokenizer.cpp. What all kinds share
// (added tokens, the normaliser, ids around a text, the decoder) is the Tokenizer's; how words are
// cut is read in words.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tegula/base/memory.h"
#include "tegula/text/json_form.h"
#include "tegula/text/words.h"

namespace tegula {

// Makes ids of text in which no added token stands, and which is normalised. Thread-safe.
class TokenModel {
 public:
  virtual ~TokenModel() = default;
  // `is_first`: the text begins what is encoded.
  virtual Status encode(std::string_view text, bool is_first, std::vector<int32_t>& ids) const = 0;
  // The members of tokenizer.json that say all of it: {"model", "pre_tokenizer", "decoder"}; of one
  // that was trained here, a loaded one has its file.
  virtual Json::Object members() const = 0;
};

struct Vocabulary {
  std::vector<std::string> tokens;  // the bytes of each id
  std::shared_ptr<const TokenModel> model;
};

// tokenizer.json, taken apart.
struct TokenizerFile {
  const Json& model;
  std::string model_type;                        // "BPE"
  Words words;                                   // its pre_tokenizer
  std::unordered_map<std::string, int32_t> ids;  // by their names in the file
  std::vector<std::string> names;                // in the order of ids: 0, 1, 2, …
  std::vector<bool> is_added;                    // those that stand in no word
  std::vector<double> scores{};                  // of Unigram's, by id
};

struct TokenizerKind {
  std::string_view name;  // "bytes"; "bpe:N" has a size
  // From text; `name` as it was asked for: "bpe:500". Null: nobody trains it here.
  Result<Vocabulary> (*train)(std::string_view name, std::string_view text);
  // From a file. The first kind that a file is of reads it.
  bool (*is_it)(const TokenizerFile& file);
  Result<std::shared_ptr<const TokenModel>> (*read)(const TokenizerFile& file);
};

extern const TokenizerKind kBytesTokenizer, kBpeTokenizer, kCharsTokenizer, kSentencePieceTokenizer,
    kWordPieceTokenizer, kUnigramTokenizer;

}  // namespace tegula
