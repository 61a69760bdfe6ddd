// JSON: what is parsed prints and parses to the same value, on one line and on many.
#include "tegula/io/json.h"

#include "tests/fuzz/target.h"

namespace tegula::fuzz {

namespace {
bool run(std::string_view input) {
  const auto value = Json::parse(input, "input");
  if (!value.ok()) return false;
  for (const int indent : {-1, 2}) {
    const std::string text = value->dump(indent);
    const auto again = Json::parse(text, "text");
    TEGULA_CHECK(again.ok() && *again == *value && again->dump(indent) == text);
  }
  return true;
}
}  // namespace

extern constinit const Target json_target{"json", run};

}  // namespace tegula::fuzz
