// Cuts text into the words within which byte-pair merges may happen, as GPT-2 does.
//
// The rule, as a pattern: 's|'t|'re|'ve|'m|'ll|'d| ?L+| ?N+| ?O+|S+(?!\S)|S+ with L letters, N
// numbers, S spaces, O the rest: the first alternative that fits, greedily. So a space goes with
// the word after it, and the last of several spaces too. A byte that is not UTF-8 is of class O.
// Written by hand: one pass, no recursion, no regular expressions.
// Cost: linear; 100 MB/s and more on ASCII.
// Source: GPT-2's encoder (Radford et al. 2019); tokenizers' ByteLevel pre-tokenizer.
//
// Llama 3 (and GPT-4) cut by (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\nLN]?L+|N{1,3}| ?O+[\r\n]*|
// S*[\r\n]+|S+(?!\S)|S+: a word takes any one character before it along, digits go by threes, and
// line breaks stay with what they end. Qwen's rule is the same with digits alone.
#pragma once

#include <cstddef>
#include <string_view>

namespace tegula {

// The length in bytes of the first word of `text`, at least 1; `text` is not empty.
using FirstWord = size_t (*)(std::string_view text);
size_t first_word(std::string_view text);
size_t first_word_llama3(std::string_view text);
size_t first_word_qwen(std::string_view text);

// A rule that is known, by the regular expression that files state it as.
struct WordRule {
  std::string_view name;  // of whose tokenizer it is: "Llama 3"
  std::string_view pattern;
  FirstWord cut;
};
// Null: none of the table's.
const WordRule* find_word_rule(std::string_view pattern);

}  // namespace tegula
