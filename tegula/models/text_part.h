// The language model that a model of images, sound and text has in it: its part of config.json
// (text_config), and the names of its weights.
#pragma once

#include <string>
#include <string_view>

namespace tegula {

class Json;

// The part of a whole config.json: text_config, with what stands beside it of the text (tied
// embeddings, the end of a text, the dtype); `others` are the parts that are left out, by commas.
// JSON's null: it has none.
Json text_part(const Json& config, std::string& others);

// A weight's name in the language model alone; "": it is another part's. Files have
// "language_model.model.…", "model.language_model.…" and "lm_head.weight".
std::string text_name(std::string_view name);

}  // namespace tegula
