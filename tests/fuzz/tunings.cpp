// Tables of tunings, with their hash repaired: an accepted one is saved and read the same, any
// other is replaced.
#include <map>

#include "tegula/io/json.h"
#include "tegula/io/sha256.h"
#include "tegula/plan/tuning_table.h"
#include "tests/fuzz/target.h"

namespace tegula::fuzz {

namespace {

std::string repaired(std::string_view input) {
  auto file = Json::parse(input, "tunings");
  const Json* calls = file.ok() ? file->find("calls") : nullptr;
  if (calls == nullptr) return std::string(input);
  file->set("sha256", sha256_hex(calls->dump()));
  return file->dump();
}

bool run(std::string_view input) {
  const std::string machine = "a machine";
  const std::string path = TuningTable(scratch(), machine).path();
  put(path, repaired(input));
  TuningTable table(scratch(), machine);
  const bool is_accepted = table.warning().empty();
  TEGULA_CHECK(is_accepted || table.size() == 0);
  table.put("fresh", {});
  TEGULA_CHECK(table.save().ok());
  const TuningTable again(scratch(), machine);
  TEGULA_CHECK(again.warning().empty() && again.size() == table.size() && again.find("fresh"));
  return is_accepted;
}

}  // namespace

extern constinit const Target tunings_target{"tunings", run};

}  // namespace tegula::fuzz
