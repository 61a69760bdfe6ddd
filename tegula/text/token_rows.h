// Rows of ids, as JSON: what `tegula encode` prints.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tegula/base/result.h"

namespace tegula {

using TokenRows = std::vector<std::vector<int32_t>>;

// [[1, 2, 3], [4, 5, 6]], or a row alone: [1, 2, 3]; no number is below `least`. `where` names the
// text in errors.
Result<TokenRows> parse_token_rows(std::string_view json, const std::string& where,
                                   int32_t least = 0);
// The same of a file.
Result<TokenRows> read_token_rows(const std::string& path, int32_t least = 0);

}  // namespace tegula
