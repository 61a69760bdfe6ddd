// What a loaded tokenizer does around its model, and which kind of model a file has.
#pragma once

#include "tegula/text/decoder.h"
#include "tegula/text/normalizer.h"
#include "tegula/text/tokenizer_kind.h"

namespace tegula {

struct TextForms {
  Normalizer normalizer;
  Decoder decoder;
  std::vector<std::string> names;  // of the ids, where the first one of a text is decoded otherwise
};

// The row of the table that reads the file. Errors: kUnsupported, naming the model.
Result<const TokenizerKind*> kind_of(const TokenizerFile& file);

}  // namespace tegula
