// A SentencePiece model as its own file holds it, tokenizer.model or spiece.model: pieces and their
// scores, how texts are normalised, whether pieces are merged (BPE) or chosen (Unigram).
//
// encode() gives the ids of the sentencepiece library: the text in its normal form, with spaces
// as U+2581, one in front, none that is extra; user-defined symbols whole; bytes for characters
// that have no piece. A text that follows an added token gets the space in front, too, unless the
// model `is_first` alone does (transformers' legacy = false). Errors: kInvalidArgument for a file
// that breaks the format; kUnsupported, by name, for models of words and characters, unused pieces,
// spaces that end a word, and a normaliser on the way back.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tegula/base/memory.h"
#include "tegula/text/tokenizer_kind.h"

namespace tegula {

struct SentencePieceFile {
  std::string_view kind;                     // "sentencepiece", "unigram"
  std::vector<std::string> names;            // of the pieces, by id
  std::vector<bool> are_bytes, are_control;  // "<0x00>" and on; those that stand in no text
  int32_t begin = -1, end = -1;              // of a text; -1: none
  std::shared_ptr<const TokenModel> model;
  int64_t n_spaces = 1;  // that are left out, at most, where ids become text
};

// `is_first_alone`: what follows an added token gets no space in front.
Result<SentencePieceFile> read_sentencepiece(std::string_view bytes, bool is_first_alone);

}  // namespace tegula
