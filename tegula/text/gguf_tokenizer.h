// The tokenizer of a GGUF file: "tokenizer.ggml.*" as a tokenizer.json, and the other way.
//
// model "gpt2": byte-level BPE, whose words are cut as the name in "pre" says (a table of names).
// model "llama": SentencePiece's BPE. It merges the pair whose token has the highest score; so the
// merges are all pairs that make a token, by score. Added tokens are those of the types control and
// user defined.
// Errors: kUnsupported for other models, names of "pre" and keys, by name; kInvalidArgument for
// lists that do not fit together. Each names file and key.
#pragma once

#include <string>
#include <vector>

#include "tegula/io/gguf.h"
#include "tegula/io/gguf_writer.h"
#include "tegula/io/json.h"

namespace tegula {

Result<Json> tokenizer_json_of(const GgufFile& file);
// "gpt2 smollm", "llama"; "": it has none.
std::string gguf_tokenizer_kind(const GgufFile& file);
// {"eos_token": "</s>"}: the texts of special tokens that the file names, as tokenizer_config.json
// has them.
Json gguf_special_tokens(const GgufFile& file);
// {"eos_token_id": [2]}, as generation_config.json has it: what ends a text, a turn or a message.
Json generation_of(const GgufFile& file);

// The keys for a tokenizer.json, padded to `n` tokens. `notes`: what they cannot say.
Result<std::vector<GgufOutKey>> gguf_keys_of(const Json& tokenizer, const std::string& path,
                                             int64_t n, std::vector<std::string>& notes);

}  // namespace tegula
