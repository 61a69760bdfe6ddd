// BpeModel: byte-pair encoding as a kind of tokenizer has it: words, their smallest tokens, merges.
#pragma once

#include <array>
#include <unordered_map>

#include "tegula/text/bpe.h"
#include "tegula/text/tokenizer_kind.h"
#include "tegula/text/words.h"

namespace tegula {

// The smallest tokens: of bytes, or of characters with bytes for those that it has not. What has no
// token is the unknown one, or nothing. -1: none.
struct BpeAlphabet {
  bool is_bytes = true;
  std::array<int32_t, 256> bytes;  // of bytes; of "<0x00>" and on, where characters have no token
  std::unordered_map<char32_t, int32_t> characters{};
  int32_t unknown = -1;
  bool fuses_unknown = false;  // one for a run of them
  BpeAlphabet() { bytes.fill(-1); }
};

class BpeModel : public TokenModel {
 public:
  BpeModel(Words words, const BpeAlphabet& alphabet, std::span<const BpeMerge> merges);
  // A word that is one of these is its id, whatever merges would make of it.
  void set_whole_words(std::unordered_map<std::string, int32_t> ids) { whole_ = std::move(ids); }
  // A text of characters is cut, too, where no merge joins the characters on both sides: those that
  // stand at the junction of a merge are all that matter. `names` are the tokens', by id.
  void cut_at_junctions(std::span<const std::string> names, std::span<const BpeMerge> merges);
  Status encode(std::string_view text, bool is_first, std::vector<int32_t>& ids) const override;
  Json::Object members() const override { return {}; }

 private:
  class Sink;
  bool may_join(char32_t left, char32_t right) const;
  void symbols(std::string_view word, std::vector<int32_t>& out) const;
  Words words_;
  BpeAlphabet alphabet_;
  std::array<int32_t, 128> ascii_{};  // of characters
  bool is_complete_ = false;          // every byte has its token
  BpeEncoder bpe_;
  std::unordered_map<std::string, int32_t> whole_;
  std::vector<uint64_t> junctions_;  // a Bloom filter of pairs; empty: nothing is cut
};

// The merges of tokenizer.json: ["a", "b"] or, in older files, "a b". Errors: they join nothing.
Result<std::vector<BpeMerge>> read_merges(const TokenizerFile& file);
// Whether the file asks for nothing that BpeModel does not do; the alphabet's unknown token.
Status read_bpe_settings(const TokenizerFile& file, BpeAlphabet& alphabet);

}  // namespace tegula
