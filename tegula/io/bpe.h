// Byte-pair encoding: merges learnt from text, and applied to words.
//
// A merge (left, right) → id replaces two neighbouring tokens by one. Training repeats: count the
// pairs of neighbours in all words, merge the most frequent; among equals the one with the
// smallest (left, right). Encoding a word applies the earliest learnt merge that fits, leftmost
// first, until none does.
// Inputs: bytes of any kind; words are those of pretokenize.h. Ids 0…255 are the bytes.
// Cost: training O(n log n) in the bytes of distinct words (pair counts and positions are kept up
// to date, the next pair comes from a heap); encoding O(k log k) for a word of k bytes.
// Source: Sennrich et al. 2016, section 3.2; GPT-2 for bytes.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tegula/io/pretokenize.h"

namespace tegula {

struct BpeMerge {
  int32_t left = 0, right = 0;
  int32_t id = 0;  // of the joined token; two merges may give the same one
  friend bool operator==(const BpeMerge&, const BpeMerge&) = default;
};

struct BpeVocabulary {
  std::vector<std::string> tokens;  // the bytes of each id
  std::vector<BpeMerge> merges;     // earliest first
};

// At most `vocab_size` ≥ 256 tokens; fewer where no pair stands twice any more. The same text
// gives the same vocabulary on every machine.
BpeVocabulary train_bpe(std::string_view text, int64_t vocab_size);

class BpeEncoder {
 public:
  BpeEncoder() = default;
  BpeEncoder(std::span<const BpeMerge> merges, const std::array<int32_t, 256>& byte_ids,
             FirstWord cut = first_word);
  // A word that is one of these is its id, whatever merges would make of it.
  void set_whole_words(std::unordered_map<std::string, int32_t> ids) { whole_ = std::move(ids); }
  // Appends the ids of `text`, all of whose words it cuts and encodes; repeated words are looked
  // up in a cache that lasts for the call.
  void encode(std::string_view text, std::vector<int32_t>& out) const;
  // Appends the ids of one word.
  void encode_word(std::string_view word, std::vector<int32_t>& out) const;

 private:
  struct Slot {
    uint64_t pair = UINT64_MAX;
    int32_t rank = -1, id = -1;
  };
  const Slot* find(int32_t left, int32_t right) const;
  std::vector<Slot> slots_;  // open addressing; the size is a power of two
  std::array<int32_t, 256> byte_ids_{};
  FirstWord cut_ = first_word;
  std::unordered_map<std::string, int32_t> whole_;
};

}  // namespace tegula
