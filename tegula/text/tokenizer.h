// Tokenizer: text to ids and back; kinds that are trained here, saved as Hugging Face reads them.
//
// bytes   id = byte; 256 ids.
// chars   id = rank of the code point among those of the training text. Bytes of the training
//         text that are not UTF-8 get ids of their own after them ("<0xE9>"), so that it too
//         comes back exactly; anything else unknown is an error.
// bpe:N   byte-level byte-pair encoding with GPT-2's words, at most N ids, the first 256 the bytes.
//
// decode(encode(x)) == x for any bytes (bytes, bpe:N) and any text of the alphabet (chars).
// Files: tokenizer.json and tokenizer_config.json, which `transformers` and `tokenizers` load as
// they are and give equal ids. load() takes these and the forms of published models: byte-level BPE
// (GPT-2, Llama 3, Qwen, GPT-4, o200k, StarCoder, DeepSeek, …), SentencePiece's BPE (Llama 2,
// Mistral, Gemma) and Unigram (T5, XLM-R), WordPiece (BERT), with their normalisers, patterns and
// decoders; without a tokenizer.json also SentencePiece's own file (tokenizer.model, spiece.model),
// with the ids of the sentencepiece library; added tokens (<|endoftext|>), found in text whole;
// templates that put ids before and behind it
// (<|begin_of_text|>), so that encode("") may give ids too. Ids are those of the `tokenizers`
// library. Its truncation and padding are left to whoever makes batches. A normaliser, a vocabulary
// that lacks bytes and WordPiece lose text: then decode() gives what the library's does, but bytes
// that make no UTF-8 stay as they are. A loaded tokenizer saves the files that it came from.
// Errors: kInvalidArgument for unknown kinds, sizes and characters (naming them and where they
// stand), and for broken files; kUnsupported for parts, keys and patterns of tokenizer.json that
// are not computed, by name; kIo. Cost: encode() about 0.4 GB/s (bytes), 0.2 GB/s (chars), 20 MB/s
// (bpe); thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tegula/base/memory.h"
#include "tegula/base/result.h"
#include "tegula/text/added_tokens.h"

namespace tegula {

// The name that stands where a token is masked, in a tokenizer that is trained here for such
// models.
inline constexpr const char* kMaskToken = "[MASK]";

class Json;
class TokenModel;
struct TextForms;
struct Vocabulary;

class Tokenizer {
 public:
  // name: "bytes", "chars" or "bpe:N" with 256 ≤ N ≤ 1,000,000.
  static Result<Tokenizer> train(std::string_view name, std::string_view text);
  static Result<Tokenizer> load(const std::string& directory);
  // From the text of a tokenizer.json that was made of another file, which errors name.
  static Result<Tokenizer> from_json(Json json, const std::string& path);

  // A name that is found in text whole and says nothing, with the next id; of one that was trained
  // here.
  void add_special(const std::string& name);
  // The id of the special token of that name; -1: it has none.
  int32_t special(std::string_view name) const;

  // `adds`: with the ids that a loaded one puts around every text; a chat's template writes its
  // own.
  Result<std::vector<int32_t>> encode(std::string_view text, bool adds = true) const;
  // Ids outside the vocabulary (a model may be padded to more) decode to U+FFFD.
  std::string decode(std::span<const int32_t> ids) const;
  // The ids that encode() puts around a text; ids without them, where they stand there.
  std::span<const int32_t> before() const { return before_; }
  std::span<const int32_t> behind() const { return behind_; }
  std::span<const int32_t> inner(std::span<const int32_t> ids) const;
  // The bytes of one id behind others; may be a part of a character: see detokenizer.h.
  std::string_view token(int32_t id) const;
  // Those of the first id of a text, and how much of a text's beginning decode() takes away.
  std::string first_token(int32_t id) const;
  size_t stripped(std::string_view text) const;
  // Whether it stands for a byte where the vocabulary lacks a character (<0xE9>); whether the files
  // call it special: no part of what is said.
  bool is_byte(int32_t id) const { return has(is_byte_, id); }
  bool is_special(int32_t id) const { return has(is_special_, id); }
  int64_t vocab_size() const { return static_cast<int64_t>(tokens_.size()); }
  // bytes, chars, bpe:N: a row of the table of kinds (tokenizer_kind.h).
  std::string_view kind() const { return kind_; }

  // Name and content of each file; save() writes them. `insists`: they stand beside a model of a
  // type for which `transformers` 5 would take a class with rules of its own.
  std::vector<std::pair<std::string, std::string>> files(bool insists = false) const;
  Status save(const std::string& directory) const;

 private:
  Tokenizer(std::string_view kind, Vocabulary vocabulary);
  static Result<Tokenizer> read(const Json& json);
  static Result<Tokenizer> load_model(const std::string& directory, const std::string& name);
  static Result<Tokenizer> parse_model(std::string_view bytes, const Json& config,
                                       const Json& added_tokens);

  std::string_view kind_;
  std::vector<std::string> tokens_;  // the bytes of each id
  std::shared_ptr<const TokenModel> model_;
  AddedTokens added_;
  std::vector<int32_t> before_, behind_;    // ids around every text
  std::shared_ptr<const TextForms> forms_;  // of a loaded one: its normaliser and decoder
  std::vector<std::pair<std::string, std::string>> loaded_files_;
  static bool has(const std::vector<bool>& marks, int32_t id) {
    return id >= 0 && static_cast<size_t>(id) < marks.size() && marks[static_cast<size_t>(id)];
  }
  std::vector<bool> is_byte_, is_special_;   // by id, of a loaded one
  std::shared_ptr<const Json> loaded_json_;  // in place of these
};

}  // namespace tegula
