// Charsmap: SentencePiece's table of texts that a normaliser replaces (nmt_nfkc and its kin), as
// its files hold it: u32 n, n bytes of a double-array trie (Darts), then what the texts become,
// each ended by a NUL.
//
// Errors: kInvalidArgument for sizes that do not fit. No table makes a reader leave it.
// Cost: linear in what is matched. Source: Kudo and Richardson 2018; the format of darts-clone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tegula/base/result.h"

namespace tegula {

class Charsmap {
 public:
  Charsmap() = default;  // of no texts
  static Result<Charsmap> read(std::string bytes);
  bool empty() const { return units_.empty(); }

  struct Match {
    size_t n_bytes = 0;  // of the text; 0: none
    std::string_view to;
  };
  // The stop text that it begins with: the longest, or the shortest.
  Match longest(std::string_view text) const { return find(text, false); }
  Match shortest(std::string_view text) const { return find(text, true); }

 private:
  Match find(std::string_view text, bool is_shortest) const;
  std::vector<uint32_t> units_;
  std::string texts_;  // ends with a NUL
};

// Error: kInvalidArgument, it is no base64.
Result<std::string> from_base64(std::string_view text);

}  // namespace tegula
