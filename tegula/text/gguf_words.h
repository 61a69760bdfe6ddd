// How a GGUF file's "tokenizer.ggml.pre" names the ways to cut words.
#pragma once

#include <string>
#include <string_view>

#include "tegula/io/json.h"

namespace tegula {

struct GgufWords {
  std::string_view names;        // by spaces; the first is written
  std::string_view patterns[4];  // one after the other; "GPT-2" as ByteLevel has it; "": no more
  bool is_whole_first = false;   // a word that is a token is that token, whatever merges make
  bool begins_with_bos = false;  // unless add_bos_token says otherwise
};

const GgufWords* find_gguf_words(std::string_view name);
// "gpt-2, llama-bpe, …"
std::string gguf_words_names();
// As tokenizer.json's "pre_tokenizer" has it.
Json pre_tokenizer_of(const GgufWords& words);
// Null: none cuts so.
const GgufWords* words_like(const Json& pre_tokenizer, bool is_whole_first);

}  // namespace tegula
