// Byte-pair encoding: merges learnt from text, and applied to words.
//
// A merge (left, right) → id replaces two neighbouring tokens by one. Training repeats: count the
// pairs of neighbours in all words, merge the most frequent; among equals the one with the
// smallest (left, right). Encoding a word applies the earliest learnt merge that fits, leftmost
// first, until none does.
// Training: bytes of any kind; words are those of GPT-2 (pretokenize.h). Ids 0…255 are the bytes.
// Cost: training O(n log n) in the bytes of distinct words (pair counts and positions are kept up
// to date, the next pair comes from a heap); encoding O(k log k) for a word of k bytes.
// Source: Sennrich et al. 2016, section 3.2; GPT-2 for bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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
  explicit BpeEncoder(std::span<const BpeMerge> merges);
  // What merging one word needs; kept, so that the next word takes no memory.
  struct Node {
    int32_t id;
    uint32_t before, after;
  };
  struct Candidate {
    int32_t rank;
    uint32_t position;
    int32_t left, right, id;
  };
  struct Scratch {
    std::vector<Node> nodes;
    std::vector<Candidate> heap;
  };
  // Appends what the merges make of a word's tokens.
  void merge(std::span<const int32_t> word, Scratch& scratch, std::vector<int32_t>& out) const;

 private:
  struct Slot {
    uint64_t pair = UINT64_MAX;
    int32_t rank = -1, id = -1;
  };
  const Slot* find(int32_t left, int32_t right) const;
  std::vector<Slot> slots_;  // open addressing; the size is a power of two; empty: no merges
};

}  // namespace tegula
