#include "tegula/text/token_rows.h"

#include "tegula/io/file.h"
#include "tegula/io/json.h"

namespace tegula {

Result<TokenRows> parse_token_rows(std::string_view text, const std::string& where, int32_t least) {
  const Json json = TEGULA_TRY(Json::parse(text, where));
  const Error wrong = invalid_argument(
      cat(where, ": is neither rows of ids, [[1, 2, 3], [4, 5, 6]], nor one row, [1, 2, 3]"));
  const auto* list = json.as<Json::Array>();
  if (list == nullptr) return wrong;
  const bool is_one = !list->empty() && list->front().is_number();
  TokenRows rows;
  for (const Json& row : is_one ? Json::Array{json} : *list) {
    const auto* ids = row.as<Json::Array>();
    if (ids == nullptr) return wrong;
    auto& to = rows.emplace_back();
    for (const Json& id : *ids) {
      const auto* n = id.as<int64_t>();
      if (n == nullptr || *n < least || *n > INT32_MAX) return wrong;
      to.push_back(static_cast<int32_t>(*n));
    }
  }
  return rows;
}

Result<TokenRows> read_token_rows(const std::string& path, int32_t least) {
  return parse_token_rows(TEGULA_TRY(read_file(path)), path, least);
}

}  // namespace tegula
