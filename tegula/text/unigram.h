// UnigramEncoder: the pieces of a text whose scores (logarithms of probabilities) have the largest
// sum, by Viterbi's algorithm; a character that no piece begins with and has alone is unknown, and
// costs the smallest score and 10 more.
//
// Among equal sums the path wins whose last piece is the longest. Cost: linear in the text, times
// the length of the longest piece; 24 bytes for each byte of it.
// Source: Kudo 2018, section 3.2; Viterbi 1967.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tegula/base/result.h"

namespace tegula {

struct UnigramPiece {
  std::string_view text;
  int32_t id = 0;
  double score = 0;
};

// The pieces' bytes as a tree, a node's children side by side in the order of their bytes.
class PieceTree {
 public:
  PieceTree() = default;
  explicit PieceTree(std::span<const UnigramPiece> pieces);
  static constexpr uint32_t kNone = UINT32_MAX;
  uint32_t child(uint32_t node, char byte) const;               // 0: the root
  int32_t piece(uint32_t node) const { return pieces_[node]; }  // -1: none ends there

 private:
  std::vector<uint8_t> bytes_;
  std::vector<uint32_t> first_;  // child of each node, and the end
  std::vector<int32_t> pieces_;
};

class UnigramEncoder {
 public:
  struct Options {
    double smallest = 0;  // score, of those that count for it
    int32_t unknown = -1;
    // "<0x00>" and on, for what is unknown; -1: it is not there.
    std::array<int32_t, 256> bytes;
    bool sums_f32 = false;  // as sentencepiece; else f64, as tokenizers
    Options() { bytes.fill(-1); }
  };
  struct Step {
    double score;
    size_t start;
    int32_t piece;
  };
  using Scratch = std::vector<Step>;

  UnigramEncoder() = default;
  UnigramEncoder(std::span<const UnigramPiece> pieces, const Options& options);
  // Appends the ids. Error: something is unknown, and there is no token for that.
  Status encode(std::string_view text, Scratch& scratch, std::vector<int32_t>& ids) const;

 private:
  Status put_unknown(std::string_view text, std::vector<int32_t>& ids) const;
  PieceTree tree_;
  std::vector<double> scores_;
  std::vector<int32_t> ids_;
  Options options_;
};

}  // namespace tegula
