// Models whose sizes tegula counts from the config.json of `transformers`' classes alone, whether
// it builds them or not.
//
// A row of a table says what is not in the file: which products have biases, where norms stand,
// what an absent key means. Parameters are those of `transformers`' class, one for one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tegula/base/result.h"
#include "tegula/models/decoder_sizes.h"

namespace tegula {

class Json;

// Whether the table has a row of that model_type's sizes; some rows have defaults alone.
bool is_published(std::string_view model_type);
// The model_types of all rows, by commas.
std::string published_types();
// The file with what `transformers` takes for absent keys; itself where the type has no row.
Json with_defaults(const Json& json, std::string_view model_type);

// Errors: kInvalidArgument for values of the wrong type, kUnsupported for what a row does not
// count, by file and key. `unread`: keys that nothing here asks for.
Result<DecoderSizes> published_sizes(const Json& json, const std::string& path,
                                     std::vector<std::string>& unread);

}  // namespace tegula
