// Ids that a tokenizer's file puts around every text: the ids of its "post_processor".
//
// Read are templates (Llama 3's <|begin_of_text|>), the ends of RoBERTa and BERT, sequences of
// these, and ByteLevel, which changes offsets alone. Errors: kUnsupported for others.
#pragma once

#include <cstdint>
#include <vector>

#include "tegula/io/json.h"

namespace tegula {

struct Around {
  std::vector<int32_t> before, behind;
};

// Null pointer or JSON's null: nothing.
Result<Around> read_post_processor(const Json* processor);

}  // namespace tegula
